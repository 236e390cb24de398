import type { IpAddress } from "#base/ip";
import type { Link } from "#kernel/link";
import type { Route } from "#kernel/route";
import { parseAlias } from "./alias.ts";
import { isMarkedCutOff } from "./link-groups.ts";
import { hostMacOf } from "./plan.ts";

/** An attachment as the kernel reports it. */
export interface AttachedPod {
  readonly pool: string;
  readonly containerId: string;
  readonly ifname: string;
  /** The ifindex of the host's link. */
  readonly ifindex: number;
  readonly hostName: string;
  /** The addresses, by the routes to the link. */
  readonly addresses: readonly IpAddress[];
}

/** A link with addresses of the pod network that is not an attachment: its alias was changed, or another program added a route to it. */
export interface UnownedLink {
  readonly ifindex: number;
  readonly hostName: string;
  /** The addresses, by the routes to the link. */
  readonly addresses: readonly IpAddress[];
}

/** Pure: joins links and routes into attachments (docs/spec/pod-network.md#5.4). */
export function joinAttachments(links: readonly Link[], routes: readonly Route[]): AttachedPod[] {
  const addresses = addressesByLink(routes);
  return links.flatMap((link) => {
    const alias = parseAlias(link.alias ?? "");
    if (alias?.kind !== "attached") return [];
    const { pool, containerId, ifname } = alias;
    const own = (addresses.get(link.index) ?? []).sort((a, b) => a.compare(b));
    return [{ pool, containerId, ifname, ifindex: link.index, hostName: link.name, addresses: own }];
  });
}

/** Pure: links without our alias that we made, or that our `routes` lead to. */
export function unownedLinks(links: readonly Link[], routes: readonly Route[]): UnownedLink[] {
  const addresses = addressesByLink(routes);
  const halfMade = new Set(halfMadeLinks(links).map(({ index }) => index));
  return links
    .filter((link) => parseAlias(link.alias ?? "") === undefined && !halfMade.has(link.index))
    .filter((link) => addresses.has(link.index) || isOurMake(link))
    .map((link) => ({ ifindex: link.index, hostName: link.name, addresses: addresses.get(link.index) ?? [] }));
}

function addressesByLink(routes: readonly Route[]): Map<number, IpAddress[]> {
  const addresses = new Map<number, IpAddress[]>();
  for (const { dst, linkIndex } of routes) {
    if (linkIndex === undefined || dst.hostBits !== 0) continue;
    addresses.set(linkIndex, [...(addresses.get(linkIndex) ?? []), dst.base]);
  }
  return addresses;
}

/** Pure: links of ADDs that did not end: links that are marked as pending, and our links that are neither marked nor up. */
export function halfMadeLinks(links: readonly Link[]): Link[] {
  return links.filter((link) => {
    if (link.kind !== "veth") return false;
    if ((link.alias ?? "") !== "") return parseAlias(link.alias ?? "")?.kind === "pending";
    // If the link is up, or cut off, another program has removed its alias: a pod may use the link.
    return isOurMake(link) && !link.up && !isMarkedCutOff(link);
  });
}

/** A veth whose MAC address follows from its name, which is true only for links of coild. */
export function isOurMake(link: Link): boolean {
  const named = /^veth[0-9a-f]{8}([0-9a-f]{3})?$/.test(link.name);
  return named && link.kind === "veth" && link.mac?.equals(hostMacOf(link.name)) === true;
}
