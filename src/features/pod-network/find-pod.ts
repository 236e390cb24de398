import type { IpAddress } from "#base/ip";
import { isKernelError } from "#kernel/errors";
import type { Kernel, NetStack } from "#kernel/net";
import { PodNamespaces, type PodPlace } from "./pod-namespaces.ts";

/**
 * The pod's namespace on this machine, whichever plugin made its interface: one behind a link of this process's own namespace, in which an interface has
 * one of these addresses. The link that the node's route leads to is tried first: a pod that is ending may have the address still. `undefined`
 * if there is none. Throws `KernelError`.
 */
export function findPod(kernel: Kernel, addresses: readonly IpAddress[]): PodPlace | undefined {
  using own = kernel.openNetNs("own");
  using host = kernel.openStack(own);
  const namespaces = new PodNamespaces(kernel, host);
  const routed = new Set(addresses.map((address) => linkTo(host, address)));
  const links = host.links.list().filter(({ peerNetNsId }) => peerNetNsId !== undefined);
  const order = links.toSorted((a, b) => Number(routed.has(b.index)) - Number(routed.has(a.index)));
  for (const link of order) {
    const place = namespaces.placeOf(link);
    if (place === undefined) continue;
    const ifname = interfaceWith(kernel, place.path, addresses);
    if (ifname !== undefined) return { ...place, ifname, addresses, podUid: undefined };
  }
  return undefined;
}

/** The longest prefix wins, whichever table it is in: the tables of pods are looked up by rules of any kind. */
function linkTo(host: Pick<NetStack, "routes">, address: IpAddress): number | undefined {
  const { family } = address;
  return host.routes
    .list({ family })
    .filter(({ dst, type }) => type === "unicast" && dst.contains(address))
    .sort((a, b) => b.dst.prefixLength - a.dst.prefixLength)[0]?.linkIndex;
}

function interfaceWith(kernel: Kernel, path: string, addresses: readonly IpAddress[]): string | undefined {
  try {
    using netns = kernel.openNetNs({ path });
    using pod = kernel.openStack(netns);
    const found = pod.addresses.list().find(({ address }) => addresses.some((one) => one.equals(address)));
    return found === undefined ? undefined : pod.links.get({ index: found.linkIndex })?.name;
  } catch (error) {
    // Other pods may end meanwhile.
    if (!isKernelError(error, "not-found")) throw error;
    return undefined;
  }
}
