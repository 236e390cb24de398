import { Cidr, type IpAddress } from "#base/ip";
import type { RouteSpec } from "#kernel/route";

/** Link-local addresses, which each link reaches without a route to their prefix (RFC 4291 section 2.5.6). */
export const LINK_LOCAL = Cidr.parse("fe80::/10");

/**
 * Pure: whether the kernel accepts a new route over this gateway without the flag `onlink`: a direct route over
 * the same link must contain it. Existing routes stay if the direct route is removed later.
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
