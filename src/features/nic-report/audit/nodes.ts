import { IpAddress } from "#base/ip";
import type { Pod } from "#kube/client";
import { CLAIM_NODE_LABEL, type NicClaim, type NicStatus, nodeLabelValue } from "#kube/nic";
import { claimText, isOver, podText } from "./claims.ts";
import type { NicFinding } from "./finding.ts";
import type { HostDevice, NicNode, NicSandbox, NodeNic, SwitchPort, SwitchState } from "./state.ts";

type Find = (kind: NicFinding["kind"], text: string) => void;

/** Finds differences between the claims of a node and what its `nic-agent` tells. Pure. */
export function auditNode(
  state: NicNode,
  { pods, claims }: { readonly pods: readonly Pod[]; readonly claims: readonly NicClaim[] },
): NicFinding[] {
  const found: NicFinding[] = [];
  const find: Find = (kind, text) => void found.push({ kind, node: state.node, text });
  const here = claims.filter((claim) => isOf(claim, state.node));
  const byUid = new Map(here.map((claim) => [claim.metadata.name, claim]));
  const sandboxOf = new Map(state.sandboxes.map((sandbox) => [sandbox.podUid, sandbox]));
  auditMemory(state, byUid, find);
  const running = new Map(
    pods
      .filter((pod) => pod.spec?.nodeName === state.node && pod.status?.phase === "Running" && !isOver(pod))
      .map((pod) => [pod.metadata.uid, pod]),
  );
  for (const claim of here) auditPlugged(claim, sandboxOf.get(claim.metadata.name), running, find);
  for (const sandbox of state.sandboxes) {
    const claim = byUid.get(sandbox.podUid);
    if (claim === undefined)
      find(
        "nic-journal-stray",
        `the journal has NICs of container ${brief(sandbox.containerId)}, whose pod with uid ${sandbox.podUid} has no NicClaim on this node`,
      );
    else auditJournal(claim, sandbox, find);
    auditSandbox(sandbox, find);
  }
  auditDevices(state, find);
  auditSwitches(state, find);
  return found;
}

/** Returns true if a claim is of a node; the agent watches the label. */
export function isOf({ metadata, status }: NicClaim, node: string): boolean {
  return (metadata.labels?.[CLAIM_NODE_LABEL] ?? nodeLabelValue(status?.nodeName ?? "")) === nodeLabelValue(node);
}

function auditMemory(state: NicNode, claims: ReadonlyMap<string, NicClaim>, find: Find): void {
  const known = new Set(state.claims);
  for (const [uid, claim] of claims)
    if (!known.has(uid)) find("nic-claim-memory", `nic-agent does not know ${claimText(claim)} (${uid})`);
  for (const uid of known)
    if (!claims.has(uid))
      find("nic-claim-memory", `nic-agent knows NicClaim ${uid}, which the API server does not have on this node`);
}

function auditPlugged(
  claim: NicClaim,
  sandbox: NicSandbox | undefined,
  running: ReadonlyMap<string, Pod>,
  find: Find,
): void {
  const isPlugged = claim.status?.conditions?.some(({ type, status }) => type === "Plugged" && status === "True");
  const pod = running.get(claim.metadata.name);
  if (sandbox === undefined && pod !== undefined)
    find("nic-unplugged", `${podText(pod)} runs without the NICs of its VPC: the journal has none of it`);
  else if (sandbox === undefined && isPlugged === true)
    find("nic-unplugged", `${claimText(claim)} says that it is plugged, and the journal has nothing of it`);
  else if (sandbox !== undefined && isPlugged !== true)
    find("nic-report", `the NICs of ${claimText(claim)} are plugged, and it has no condition Plugged`);
}

/** Compares the journal with the claim, NIC by NIC. */
function auditJournal(claim: NicClaim, { nics }: NicSandbox, find: Find): void {
  const statuses = claim.status?.nics ?? [];
  const who = claimText(claim);
  for (const nic of nics) {
    const status = statuses.find(({ portID }) => portID === nic.portId);
    if (status === undefined)
      find("nic-journal-differs", `the journal has port ${nic.portId} as ${nic.name}, and ${who} does not name it`);
    else {
      const differences = journalDifferences(nic, status);
      if (differences.length > 0)
        find("nic-journal-differs", `${nic.name} of ${who} has in the journal ${differences.join(", ")}`);
    }
  }
  // A NIC that is being added has a port before the node has it; the claim shows what the node has told.
  const told = claim.status?.plugged?.nics.map(({ name }) => name) ?? claim.spec.nics.map(({ name }) => name);
  const own = new Map(nics.map(({ name, portId }) => [portId, name]));
  for (const { name, portID } of statuses)
    if (told.includes(name) && portID !== undefined && !own.has(portID))
      find("nic-journal-differs", `${who} has port ${portID} as ${name}, and the journal does not have it`);
  for (const { name, isPending } of nics)
    if (claim.status?.plugged !== undefined && isPending !== true && !told.includes(name))
      find("nic-report", `${name} of ${who} is plugged, and it does not say so`);
}

function journalDifferences(nic: NodeNic, status: NicStatus): string[] {
  const found: string[] = [];
  const differs = (what: string, has: string, wanted: string): void => {
    if (has !== wanted) found.push(`${what} ${has === "" ? "none" : has} instead of ${wanted}`);
  };
  if (status.mac !== undefined && nic.mac !== undefined)
    differs("MAC address", nic.mac.toLowerCase(), status.mac.toLowerCase());
  if (nic.mtu !== undefined && status.mtu !== undefined && status.mtu !== 0)
    differs("MTU", String(nic.mtu), String(status.mtu));
  if (nic.isConfigured && status.ips !== undefined)
    differs(
      "addresses",
      addressesText(nic.addresses),
      addressesText(status.ips.map(({ ip, prefixLength }) => `${ip}/${prefixLength}`)),
    );
  return found;
}

function auditSandbox({ containerId, netns, isThere, nics }: NicSandbox, find: Find): void {
  const who = `container ${brief(containerId)}`;
  if (!isThere && nics.some(({ isConfigured }) => isConfigured)) {
    find("nic-sandbox", `${netns}, the network namespace of ${who}, does not exist`);
    return;
  }
  const differences = nics.filter(isWhole).flatMap((nic) => nic.differences);
  if (differences.length > 0) find("nic-sandbox", `${netns} of ${who}: ${differences.join("; ")}`);
}

/** A NIC that is being added to a running sandbox has not all of its parts yet. */
function isWhole({ isPending }: NodeNic): boolean {
  return isPending !== true;
}

function auditDevices({ sandboxes, devices }: NicNode, find: Find): void {
  const byName = new Map(devices.map((device) => [device.name, device]));
  const needed = new Set<string>();
  for (const { containerId, nics } of sandboxes) {
    for (const nic of nics) {
      const { name, portId } = nic;
      for (const one of nic.devices) {
        needed.add(one.name);
        if (!isWhole(nic)) continue;
        const fault = deviceFault(one, byName.get(one.name), { portId, containerId });
        if (fault !== undefined)
          find("nic-device-lacks", `${name} of port ${portId} (container ${brief(containerId)}): ${fault}`);
      }
    }
  }
  for (const { name, portId, containerId } of devices)
    if (!needed.has(name))
      find("nic-device-stray", `device ${name} of port ${portId} and container ${brief(containerId)} is in no journal`);
}

function deviceFault(
  wanted: NodeNic["devices"][number],
  device: HostDevice | undefined,
  owner: { readonly portId: string; readonly containerId: string },
): string | undefined {
  if (device === undefined) return `device ${wanted.name} is missing, or has no mark of ours`;
  if (device.portId !== owner.portId || device.containerId !== owner.containerId)
    return `device ${wanted.name} has the mark of port ${device.portId} and container ${brief(device.containerId)}`;
  if (!device.isUp) return `device ${wanted.name} is down`;
  if (wanted.master !== undefined && device.master !== wanted.master)
    return `device ${wanted.name} is ${device.master === undefined ? "in no bridge" : `in ${device.master}`}, not in ${wanted.master}`;
  return undefined;
}

function auditSwitches({ sandboxes, switches }: NicNode, find: Find): void {
  const wanted = sandboxes.flatMap(({ nics }) =>
    nics.flatMap((nic) => (nic.port ? [{ name: nic.name, port: nic.port, isWhole: isWhole(nic) }] : [])),
  );
  for (const one of switches) {
    const needed = wanted.filter(({ port }) => port.ovsdb === one.ovsdb);
    if (one.fault !== undefined) {
      // A node without ports of Neutron may have no switch.
      if (needed.length > 0) find("nic-switch", `the database at ${one.ovsdb} cannot be read: ${one.fault}`);
      continue;
    }
    for (const bridge of new Set(needed.map(({ port }) => port.bridge)))
      if (!one.bridges.includes(bridge))
        find("nic-switch", `there is no bridge ${bridge}: does the provider's agent of this node run?`);
    for (const { name, port, isWhole: isDone } of needed) {
      if (!isDone) continue;
      const fault = portFault(port, one);
      if (fault !== undefined)
        find("nic-switch-lacks", `${name} of port ${port.externalIds["iface-id"] ?? ""}: ${fault}`);
    }
    const devices = new Set(needed.map(({ port }) => port.device));
    for (const port of one.ports)
      if (isOurs(port) && !devices.has(port.device))
        find(
          "nic-switch-stray",
          `port ${port.device} of ${port.bridge} is of ${port.externalIds["iface-id"] ?? ""} and container ${brief(port.externalIds["vm-id"] ?? "")}, which is in no journal`,
        );
  }
}

function portFault(wanted: NonNullable<NodeNic["port"]>, { bridges, ports }: SwitchState): string | undefined {
  const port = ports.find(({ device }) => device === wanted.device);
  // A bridge that is missing is told once.
  if (port === undefined)
    return bridges.includes(wanted.bridge) ? `${wanted.bridge} lacks it as ${wanted.device}` : undefined;
  if (port.bridge !== wanted.bridge) return `${wanted.device} is in ${port.bridge}, not in ${wanted.bridge}`;
  const other = Object.entries(wanted.externalIds).find(([key, value]) => port.externalIds[key] !== value);
  if (other !== undefined)
    return `${wanted.device} has ${other[0]} ${port.externalIds[other[0]] ?? "none"}, not ${other[1]}`;
  if (port.error !== "") return `${wanted.device} is not served: ${port.error}`;
  return port.ofport === undefined
    ? `${wanted.device} is not served: it has no number; does ovs-vswitchd run?`
    : undefined;
}

/** The ids of pod and container are those that `nic-agent` writes; others write a machine's. */
function isOurs({ externalIds }: SwitchPort): boolean {
  return ["iface-id", "vm-id", "vm-uuid"].every((key) => externalIds[key] !== undefined);
}

function addressesText(addresses: readonly string[]): string {
  return addresses
    .map((text) => {
      const [address = "", length = ""] = text.split("/");
      return `${IpAddress.tryParse(address) ?? address}/${length}`;
    })
    .sort()
    .join(" ");
}

/** The beginning of a container's id, as runtimes show it. */
function brief(containerId: string): string {
  return containerId.slice(0, 13);
}
