import type { AbortOptions } from "#base/async";
import type { IpAddress, IpFamily } from "#base/ip";
import type { ConntrackPort } from "#kernel/conntrack";

/** A source of tunnel packets on a node, and the address that they leave the node with. */
export interface TunnelSource {
  readonly source: IpAddress;
  /** Another one than the source: the node translates it, and no router takes the packets (docs/spec/pod-network.md#9.1). */
  readonly leavesAs: IpAddress;
}

const UDP = 17;

/**
 * Returns the senders of packets to the port of tunnels, as the connection tracking of the node knows it: a source once for each address that it leaves with. At most `limit`.
 * Rejects with `KernelError`.
 */
export async function tunnelSources(
  conntrack: Pick<ConntrackPort, "listInSlices">,
  { port, families, limit }: { readonly port: number; readonly families: readonly IpFamily[]; readonly limit: number },
  options: AbortOptions = {},
): Promise<TunnelSource[]> {
  const found = new Map<string, TunnelSource>();
  for (const family of families) {
    const filter = { family, protocol: UDP, original: { dstPort: port } };
    for (const { original, reply } of await conntrack.listInSlices(filter, options)) {
      if (found.size >= limit) break;
      found.set(`${original.src} ${reply.dst}`, { source: original.src, leavesAs: reply.dst });
    }
  }
  return [...found.values()];
}
