import type { Kernel, NetStack } from "#kernel/net";
import { parseAlias } from "./alias.ts";
import { PodNamespaces, type PodPlace } from "./pod-namespaces.ts";

/** The place of a pod that a link's alias marks. */
export type MarkedPlace = Omit<PodPlace, "addresses">;

/**
 * The namespaces of all pods with a mark of `coild` on their link, whether `coild` runs or not. Looks through all namespaces of the machine; one that cannot be
 * found is left out. Throws `KernelError`.
 */
export function markedPlaces(kernel: Kernel, host: NetStack): MarkedPlace[] {
  const namespaces = new PodNamespaces(kernel, host);
  return host.links.list().flatMap((link): MarkedPlace[] => {
    const alias = parseAlias(link.alias ?? "");
    if (alias === undefined || alias.kind === "pending") return [];
    const place = namespaces.placeOf(link);
    if (place === undefined) return [];
    const { ifname } = alias;
    return alias.kind === "adopted"
      ? [{ ...place, ifname, podUid: alias.podUid }]
      : [{ ...place, ifname, podUid: undefined, containerId: alias.containerId }];
  });
}
