import {
  commandRunner,
  iptablesFilter,
  nftFilter,
  observeClosed,
  openClientGuard,
  syncClient,
  vxlanDriver,
} from "#features/egress";
import { markedPlaces } from "#features/pod-network";
import type { NodeFacts } from "#features/uninstall";
import { openConntrack } from "#kernel/conntrack";
import { isKernelError } from "#kernel/errors";
import { type Kernel, type NetNs, type NetStack, openSameNetNs } from "#kernel/net";
import { openNft } from "#kernel/nft";

/** The NAT client of a pod on this node. */
export type Client = NodeFacts["clients"][number];

/** The pods of this node that have something of a NAT client in their namespaces. Changes nothing. Throws `KernelError`. */
export function readClients(kernel: Kernel, host: NetStack, { port }: { readonly port: number }): readonly Client[] {
  const seen = new Set<bigint>();
  return markedPlaces(kernel, host).flatMap(({ path, inode, ifname, podUid, containerId }): Client[] => {
    if (seen.has(inode)) return [];
    seen.add(inode);
    using netns = openSameNetNs(kernel, { path, inode });
    if (netns === undefined) return [];
    using stack = kernel.openStack(netns);
    const { annotation, selector } = observeClosed(stack, { port });
    const destinations = [...new Set([...annotation, ...selector].map(String))];
    if (destinations.length === 0) return [];
    const who = containerId === undefined ? `the pod with UID ${podUid}` : `the pod of container ${containerId}`;
    return [{ path, inode, ifname, who, destinations, isCutOff: containerId !== undefined }];
  });
}

/** Removes what a pod has of a NAT client. Idempotent; nothing is done if its namespace is gone. Throws as `syncClient`. */
export async function removeClient(
  kernel: Kernel,
  { path, inode, ifname }: Pick<Client, "path" | "inode" | "ifname">,
  { port, openGuard = openClientGuard }: { readonly port: number; readonly openGuard?: typeof openClientGuard },
): Promise<void> {
  using netns = openSameNetNs(kernel, { path, inode });
  if (netns === undefined) return;
  removeGuard(netns, openGuard);
  using stack = kernel.openStack(netns);
  await syncClient(stack, { addresses: {}, ifname, mtuBytes: 1500 }, [], {
    // Nothing is made, so any driver does.
    driver: vxlanDriver,
    port,
    inCluster: [],
    openFilter: () => nftIn(netns),
    openOther: () => ({ ...iptablesFilter(commandRunner(netns)), [Symbol.dispose]: () => undefined }),
    openConntrack: () => openConntrack(netns),
  });
}

/** A kernel without nf_tables has no such table. It answers EINVAL, and without all of netfilter EPROTONOSUPPORT; with nf_tables the look is never refused so. */
function removeGuard(netns: NetNs, openGuard: typeof openClientGuard): void {
  try {
    using guard = openGuard(netns);
    guard.remove();
  } catch (error) {
    if (!isKernelError(error, "unsupported", "invalid")) throw error;
  }
}

function nftIn(netns: NetNs) {
  const nft = openNft(netns);
  return { ...nftFilter(nft), [Symbol.dispose]: () => nft[Symbol.dispose]() };
}
