import type { IpAddress } from "#base/ip";
import type { Link } from "#kernel/link";
import type { Route } from "#kernel/route";
import { parseAlias } from "./alias.ts";
import { hostMacOf } from "./plan.ts";

/** An attachment as the kernel has it. */
export interface AttachedPod {
  readonly pool: string;
  readonly containerId: string;
  readonly ifname: string;
  /** Of the host's link. */
  readonly ifindex: number;
  readonly hostName: string;
  /** From the routes to it. */
  readonly addresses: readonly IpAddress[];
}

/** Pure: joins links and routes into attachments (spec pod-network 5.4). */
export function joinAttachments(links: readonly Link[], routes: readonly Route[]): AttachedPod[] {
  const addresses = new Map<number, IpAddress[]>();
  for (const { dst, linkIndex } of routes) {
    if (linkIndex === undefined || dst.hostBits !== 0) continue;
    addresses.set(linkIndex, [...(addresses.get(linkIndex) ?? []), dst.base]);
  }
  return links.flatMap((link) => {
    const alias = parseAlias(link.alias ?? "");
    if (alias?.kind !== "attached") return [];
    const { pool, containerId, ifname } = alias;
    const own = (addresses.get(link.index) ?? []).sort((a, b) => a.compare(b));
    return [{ pool, containerId, ifname, ifindex: link.index, hostName: link.name, addresses: own }];
  });
}

/** Pure: links of ADDs that never ended: marked as pending, or made by us and not marked at all. */
export function halfMadeLinks(links: readonly Link[]): Link[] {
  return links.filter((link) => {
    if (link.kind !== "veth") return false;
    if ((link.alias ?? "") !== "") return parseAlias(link.alias ?? "")?.kind === "pending";
    return isUnmarkedOurs(link);
  });
}

/** A veth without alias whose MAC address follows from its name, as only ours does. */
export function isUnmarkedOurs(link: Link): boolean {
  const named = /^veth[0-9a-f]{8}([0-9a-f]{3})?$/.test(link.name);
  return named && (link.alias ?? "") === "" && link.mac?.equals(hostMacOf(link.name)) === true;
}
