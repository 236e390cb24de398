import type { Cidr } from "#base/ip";
import type { GrpcHandler } from "#features/cni";
import type { NodeIpam } from "#features/ipam";
import type { PodNetwork } from "#features/pod-network";

/** A method beside `pkg.cnirpc.CNI`, for audits: what coild has in memory and sees in the kernel, as JSON. */
export const INSPECT_PATH = "/isthmus.dev.Node/Inspect";

/** The answer of {@link INSPECT_PATH}. */
export interface NodeState {
  readonly node: string;
  readonly memory: ReturnType<NodeIpam["snapshot"]>;
  readonly kernel: readonly {
    readonly pool: string;
    readonly containerId: string;
    readonly ifname: string;
    readonly hostName: string;
    readonly addresses: readonly string[];
  }[];
  readonly halfMade: readonly string[];
  /** Prefixes in the export table. */
  readonly exported: readonly string[];
}

/** Answers with one consistent picture: nothing is awaited between reading memory and kernel. */
export function inspectHandler(parts: {
  readonly nodeName: string;
  readonly ipam: NodeIpam;
  readonly network: PodNetwork;
  readonly exported: () => readonly Cidr[];
}): GrpcHandler {
  return async () => {
    const state: NodeState = {
      node: parts.nodeName,
      memory: parts.ipam.snapshot(),
      kernel: parts.network.list().map(({ addresses, ...rest }) => ({ ...rest, addresses: addresses.map(String) })),
      halfMade: parts.network.halfMade(),
      exported: parts.exported().map(String),
    };
    return new TextEncoder().encode(JSON.stringify(state));
  };
}
