import { Cidr, type IpAddress } from "#base/ip";
import type { RouteSpec } from "#kernel/route";

/** RFC 4291 section 2.5.6: reached on each link without a prefix. */
export const LINK_LOCAL = Cidr.parse("fe80::/10");

/**
 * Pure: whether the kernel takes a new route over this gateway without being told that it is on the link: some direct route over
 * the same link has to lead there. Old routes stay when that one goes.
 */
export function isOnLink(
  gateway: IpAddress | undefined,
  linkIndex: number | undefined,
  routes: Iterable<RouteSpec>,
): boolean {
  if (gateway === undefined || LINK_LOCAL.contains(gateway)) return true;
  for (const route of routes) {
    const isDirect = route.gateway === undefined && route.multipath === undefined && route.linkIndex === linkIndex;
    if (isDirect && route.dst.contains(gateway)) return true;
  }
  return false;
}
