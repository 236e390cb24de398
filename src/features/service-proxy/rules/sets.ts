import type { IpFamily } from "#base/ip";
import type { NftSetSpec } from "#kernel/nft";
import type { PartType } from "#kernel/nft-elements";

/** Names of the sets and maps of a table. */
export const SETS = {
  serviceIps: "service-ips",
  /**
   * Verdicts for pods and this node with externalTrafficPolicy Local: they reach endpoints of the whole cluster, as if they used the load
   * balancer.
   */
  localVerdicts: "service-ips-short",
  nodePorts: "service-nodeports",
  nodePortLocalVerdicts: "service-nodeports-short",
  endpoints: "eps",
  endpointsLocal: "eps-local",
  nodePortEndpoints: "np-eps",
  nodePortEndpointsLocal: "np-eps-local",
  noEndpoints: "noep",
  noEndpointsNodePorts: "np-noep",
  clusterIps: "cluster-ips",
  nodePortIps: "nodeport-ips",
  serviceCidrs: "service-cidrs",
  hairpin: "hairpin",
  firewallVips: "fw-vips",
  firewallAllow: "fw-allow",
  affinity: "affinity",
  /** From each front end with affinity to the key of its service port in `affinity`, which its other front ends have too. */
  affinityKeys: "affinity-keys",
  nodePortAffinityKeys: "np-affinity-keys",
} as const;

/** Maximum of affinity entries in each family; further clients are balanced again (docs/spec/service-proxy.md#K7). */
export const AFFINITY_ENTRIES = 262_144;

/** Name of the set of front ends, by address, with affinity of this many seconds. */
export function affinitySet(seconds: number): string {
  return `affinity-${seconds}`;
}

/** Name of the set of NodePorts with affinity of this many seconds. */
export function affinityNodePortSet(seconds: number): string {
  return `np-affinity-${seconds}`;
}

/** Maps of endpoints by slot. Their keys end in a random number, which has the type `mark`. */
export function slotMaps(
  family: IpFamily,
): ReadonlyMap<string, { readonly key: readonly PartType[]; readonly value: readonly PartType[] }> {
  const address = family === 4 ? "ipv4_addr" : "ipv6_addr";
  const value = [address, "inet_service"] as const;
  const byAddress = { key: [address, "inet_proto", "inet_service", "mark"], value } as const;
  const byNodePort = { key: ["inet_proto", "inet_service", "mark"], value } as const;
  return new Map<string, { readonly key: readonly PartType[]; readonly value: readonly PartType[] }>([
    [SETS.endpoints, byAddress],
    [SETS.endpointsLocal, byAddress],
    [SETS.nodePortEndpoints, byNodePort],
    [SETS.nodePortEndpointsLocal, byNodePort],
  ]);
}

/** The sets that a table always has, besides the maps of endpoints. `affinityEntries`: maximum of clients that are remembered. */
export function setSpecs(family: IpFamily, affinityEntries = AFFINITY_ENTRIES): ReadonlyMap<string, NftSetSpec> {
  const address = family === 4 ? "ipv4_addr" : "ipv6_addr";
  const frontEnd = `${address} . inet_proto . inet_service`;
  return new Map<string, NftSetSpec>([
    [SETS.serviceIps, { key: frontEnd, value: "verdict" }],
    [SETS.localVerdicts, { key: frontEnd, value: "verdict" }],
    [SETS.nodePorts, { key: "inet_proto . inet_service", value: "verdict" }],
    [SETS.nodePortLocalVerdicts, { key: "inet_proto . inet_service", value: "verdict" }],
    [SETS.noEndpoints, { key: frontEnd, value: "verdict" }],
    [SETS.noEndpointsNodePorts, { key: "inet_proto . inet_service", value: "verdict" }],
    [SETS.clusterIps, { key: address }],
    [SETS.nodePortIps, { key: address }],
    [SETS.serviceCidrs, { key: address, flags: ["interval"] }],
    [SETS.hairpin, { key: `${address} . ${address} . inet_proto . inet_service` }],
    [SETS.firewallVips, { key: frontEnd }],
    [SETS.firewallAllow, { key: `${frontEnd} . ${address}`, flags: ["interval"] }],
    [
      SETS.affinity,
      {
        key: `${address} . ${frontEnd}`,
        value: `${address} . inet_service`,
        flags: ["dynamic", "timeout"],
        size: affinityEntries,
      },
    ],
    [SETS.affinityKeys, { key: frontEnd, value: frontEnd }],
    [SETS.nodePortAffinityKeys, { key: "inet_proto . inet_service", value: frontEnd }],
  ]);
}

/** The sets for one affinity timeout. */
export function affinitySetSpecs(family: IpFamily, seconds: number): ReadonlyMap<string, NftSetSpec> {
  const address = family === 4 ? "ipv4_addr" : "ipv6_addr";
  return new Map<string, NftSetSpec>([
    [affinitySet(seconds), { key: `${address} . inet_proto . inet_service` }],
    [affinityNodePortSet(seconds), { key: "inet_proto . inet_service" }],
  ]);
}
