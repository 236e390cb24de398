import type { Cidr } from "#base/ip";
import type { AuditedNode, NodeIpam } from "#features/ipam";
import type { PodNetwork } from "#features/pod-network";

/** The answer of coild to Inspect. */
export interface NodeInspection extends AuditedNode {
  readonly memory: ReturnType<NodeIpam["snapshot"]>;
  readonly kernel: readonly {
    readonly pool: string;
    readonly containerId: string;
    readonly ifname: string;
    readonly hostName: string;
    readonly addresses: readonly string[];
  }[];
}

/** Reads memory, kernel and exported routes at one moment: nothing is awaited between the three readings. */
export function inspectThisNode(parts: {
  readonly nodeName: string;
  readonly ipam: NodeIpam;
  readonly network: PodNetwork;
  readonly exported: readonly Cidr[];
}): NodeInspection {
  return {
    node: parts.nodeName,
    memory: parts.ipam.snapshot(),
    kernel: parts.network.list().map(({ addresses, ...rest }) => ({ ...rest, addresses: addresses.map(String) })),
    halfMade: parts.network.halfMade(),
    exported: parts.exported.map(String),
  };
}
