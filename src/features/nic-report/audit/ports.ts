import { IpAddress } from "#base/ip";
import { isReadyWhenPlugged, type VpcPort } from "#cloud/vpc";
import type { NicClaim, NicStatus } from "#kube/nic";
import { claimText } from "./claims.ts";
import type { NicFinding } from "./finding.ts";
import type { NicAuditRules } from "./rules.ts";

/** The ports and nodes with which claims are compared. */
export interface AuditedPorts {
  /** All ports of this suite, and those that claims name, by the name of their provider. Claims of others are not compared. */
  readonly ports: ReadonlyMap<string, readonly VpcPort[]>;
  /** The id of this cluster; `undefined`: orphans are not looked for. */
  readonly clusterId: string | undefined;
  /** The name of a node at its provider. */
  readonly hostOf: (node: string) => string;
  /** Returns true if a pod that is not at its end has this uid. */
  readonly isRunning: (podUID: string) => boolean;
  /** Milliseconds since the epoch. */
  readonly now: number;
}

/** Finds differences between claims and the ports of providers. Pure. */
export function auditPorts(claims: readonly NicClaim[], world: AuditedPorts, rules: NicAuditRules): NicFinding[] {
  const found: NicFinding[] = [];
  const known = new Set(claims.map(({ metadata }) => metadata.name));
  for (const [provider, ports] of world.ports) {
    const own = claims.filter(({ spec }) => spec.provider === provider);
    const byId = new Map(ports.map((port) => [port.id, port]));
    const byDevice = Map.groupBy(ports, ({ deviceId }) => deviceId);
    for (const claim of own) {
      found.push(
        ...claim.spec.nics.flatMap(({ name }) => {
          const nic = claim.status?.nics?.find((one) => one.name === name);
          return nic?.portID === undefined ? [] : auditPort(claim, nic, byId.get(nic.portID), world);
        }),
        ...auditIdentity(claim, byDevice.get(claim.metadata.name) ?? [], rules),
      );
    }
    found.push(...sharedPorts(own));
    const { clusterId, isRunning, now } = world;
    if (clusterId === undefined) continue;
    const isWanted = (uid: string): boolean => known.has(uid) || isRunning(uid);
    for (const { id, podUID, namespace } of rules.orphansOf(ports, { clusterId, isWanted, now, minAgeMs: 0 }))
      found.push({
        kind: "nic-port-orphan",
        node: undefined,
        text: `port ${id} of ${provider} was made for the pod with uid ${podUID} in namespace ${namespace}, which has no NicClaim: nicctl gc deletes it`,
      });
  }
  return found;
}

function auditPort(
  claim: NicClaim,
  nic: NicStatus,
  port: VpcPort | undefined,
  { hostOf }: AuditedPorts,
): readonly NicFinding[] {
  const node = claim.status?.nodeName;
  const who = `${nic.name} of ${claimText(claim)}`;
  if (port === undefined)
    return [
      {
        kind: "nic-port-missing",
        node,
        text: `${who} names port ${nic.portID}, which ${claim.spec.provider} does not have`,
      },
    ];
  const differences: string[] = [];
  const differs = (what: string, has: string, wanted: string): void => {
    if (has !== wanted) differences.push(`${what} ${has === "" ? "none" : has} instead of ${wanted}`);
  };
  differs("device", port.deviceId, claim.metadata.name);
  if (nic.networkID !== undefined) differs("network", port.networkId, nic.networkID);
  if (nic.mac !== undefined) differs("MAC address", port.mac.toLowerCase(), nic.mac.toLowerCase());
  if (nic.ips !== undefined) {
    const ips = nic.ips.map(({ ip }) => ip);
    // Neutron gives a port an address of each subnet with SLAAC, which a NIC does not use that does not want IPv6.
    const isPlain = claim.spec.nics.some(({ name, ipv6Enabled }) => name === nic.name && ipv6Enabled !== true);
    const leavesIpv6 = nic.createdByController === true && isPlain && !ips.some((ip) => ip.includes(":"));
    const has = port.addresses.map(({ ip }) => ip).filter((ip) => !leavesIpv6 || !ip.includes(":"));
    differs("addresses", addressesText(has), addressesText(ips));
  }
  if ((nic.host ?? "") !== "") differs("host", port.binding.host, nic.host ?? "");
  // A claim that is bound to where the node is not, is what a wrong annotation of the Node makes.
  if (node !== undefined && (nic.host ?? "") !== "" && nic.host !== hostOf(node))
    differences.push(`host ${nic.host} instead of ${hostOf(node)}, which is node ${node}`);
  if (nic.vifType !== undefined) differs("binding", port.binding.vifType, nic.vifType);
  // Such a port is ready when its device is there.
  if (nic.state === "Ready" && !isReadyWhenPlugged(port.binding)) differs("status", port.status, "ACTIVE");
  if (differences.length === 0) return [];
  return [{ kind: "nic-port-differs", node, text: `port ${port.id} (${who}) has ${differences.join(", ")}` }];
}

/** Ports with the identity of a claim's NICs that are not the recorded ones. */
function auditIdentity(claim: NicClaim, ports: readonly VpcPort[], rules: NicAuditRules): NicFinding[] {
  const node = claim.status?.nodeName;
  const recorded = new Map(
    (claim.status?.nics ?? []).flatMap(({ name, portID }) => (portID === undefined ? [] : [[name, portID] as const])),
  );
  return [...rules.ownPorts(ports, claim.metadata.name, recorded)].flatMap(([nic, { port, surplus }]): NicFinding[] => [
    ...(recorded.get(nic) === port.id
      ? []
      : [
          {
            kind: "nic-port-unrecorded" as const,
            node,
            text: `port ${port.id} was made for ${nic} of ${claimText(claim)}, which names ${recorded.get(nic) ?? "no port"}`,
          },
        ]),
    ...surplus.map(({ id }) => ({
      kind: "nic-port-double" as const,
      node,
      text: `port ${id} is a second one of ${nic} of ${claimText(claim)}, beside ${port.id}`,
    })),
  ]);
}

/** Ports that several NICs name. */
function sharedPorts(claims: readonly NicClaim[]): NicFinding[] {
  const uses = claims.flatMap((claim) =>
    (claim.status?.nics ?? []).flatMap(({ name, portID }) =>
      portID === undefined ? [] : [{ portID, node: claim.status?.nodeName, text: `${name} of ${claimText(claim)}` }],
    ),
  );
  return [...Map.groupBy(uses, ({ portID }) => portID)].flatMap(([portID, users]): NicFinding[] =>
    users.length < 2
      ? []
      : [
          {
            kind: "nic-port-double",
            node: users[0]?.node,
            text: `port ${portID} is named by ${users.map(({ text }) => text).join(" and ")}`,
          },
        ],
  );
}

function addressesText(addresses: readonly string[]): string {
  return addresses
    .map((text) => String(IpAddress.tryParse(text) ?? text))
    .sort()
    .join(" ");
}
