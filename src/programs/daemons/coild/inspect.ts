import type { AbortOptions } from "#base/async";
import type { Cidr } from "#base/ip";
import { type EgressClients, encodeNode } from "#features/egress";
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
  const memory = parts.ipam.snapshot();
  // A pod has no IPv6 address on a link whose MTU is too small for it, though its slot has one.
  const narrow = parts.network.withoutIpv6();
  const attachments = memory.attachments.map((one) =>
    narrow.has(`${one.containerId}/${one.ifname}`) ? { ...one, ipv6: undefined } : one,
  );
  return {
    node: parts.nodeName,
    memory: { ...memory, attachments },
    kernel: parts.network.list().map(({ addresses, ...rest }) => ({ ...rest, addresses: addresses.map(String) })),
    halfMade: parts.network.halfMade(),
    exported: parts.exported.map(String),
    ...unguardedOf(parts.network),
  };
}

function unguardedOf(network: PodNetwork): Pick<NodeInspection, "unguarded"> {
  const unguarded = network.unguarded();
  return unguarded === undefined ? {} : { unguarded };
}

/** The answer of coild to the question about NAT clients and routers, as data that JSON can have. Without clients it says so. */
export async function inspectClients(
  clients: Pick<EgressClients, "inspect"> | undefined,
  node: string,
  options: AbortOptions,
): Promise<object> {
  return encodeNode(
    clients === undefined ? { node, spaces: [], clean: [], failed: [] } : await clients.inspect(options),
  );
}
