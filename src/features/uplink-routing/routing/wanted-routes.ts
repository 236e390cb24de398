import { isEqual } from "#base/collections";
import { Cidr, type IpAddress, type IpFamily } from "#base/ip";
import type { UplinkSettings } from "#base/uplink-model";
import type { Link } from "#kernel/link";
import type { NextHop, Route, RouteSpec } from "#kernel/route";
import { type KernelListing, TABLE_MAIN } from "../state/index.ts";
import { isOnLink, LINK_LOCAL } from "./on-link.ts";
import { LAST_METRIC } from "./ownership.ts";

const DEFAULT = { 4: Cidr.parse("0.0.0.0/0"), 6: Cidr.parse("::/0") } as const;
/** IP6_RT_PRIO_USER of include/net/ip6_route.h: the metric that the kernel gives a route without one. */
const IPV6_METRIC = 1024;

/** include/uapi/linux/if.h: the link has one peer, as those of modems, PPP and tunnels. */
const IFF_POINTOPOINT = 0x10;

/** Table and mark of one of our routes. */
export interface Place {
  readonly table: number;
  readonly protocol: number;
}

/** Pure: everything that the table of one uplink holds, in an order in which it can be added (docs/spec/uplink-proxy.md#3.1). */
export function uplinkRoutes(uplink: UplinkSettings, link: Link, listing: KernelListing, place: Place): RouteSpec[] {
  return ([4, 6] as const).flatMap((family) => [
    endMarker(family, place),
    // The kernel accepts no routes over a link that is down; the end marker prevents packets from leaving over another link.
    ...(link.up ? waysOf(uplink, link, listing, family).map((route) => ({ ...route, ...place })) : []),
  ]);
}

/** Pure: the last route of a table: packets that match no other route are unreachable. */
export function endMarker(family: IpFamily, place: Place): RouteSpec {
  return { dst: DEFAULT[family], type: "unreachable", metric: LAST_METRIC, scope: "global", ...place };
}

/** Pure: the key of a route: a route of the same table, prefix and metric replaces another. */
export function routeKey({ dst, table, metric }: Pick<RouteSpec, "dst" | "table" | "metric">): string {
  return `${table ?? TABLE_MAIN} ${dst} ${metric ?? (dst.family === 6 ? IPV6_METRIC : 0)}`;
}

function waysOf(uplink: UplinkSettings, link: Link, listing: KernelListing, family: IpFamily): RouteSpec[] {
  const routes = uplink.mode === "static" ? staticRoutes(uplink, link, listing, family) : copies(link, listing, family);
  const byKey = new Map<string, RouteSpec>();
  for (const route of routes) if (!byKey.has(routeKey(route))) byKey.set(routeKey(route), route);
  // Direct routes first: the kernel looks gateways up in the existing routes.
  const direct = (route: RouteSpec): number => (route.gateway === undefined && route.multipath === undefined ? 0 : 1);
  return [...byKey.values()].sort((a, b) => direct(a) - direct(b));
}

/**
 * Returns a route to the prefix of each configured address that the link has, and a default route via the gateway; without a gateway, over a
 * point-to-point link, to its peer.
 */
function staticRoutes(uplink: UplinkSettings, link: Link, listing: KernelListing, family: IpFamily): RouteSpec[] {
  const gateway = family === 4 ? uplink.gateway4 : uplink.gateway6;
  const own = uplink.addresses.flatMap(({ address, prefixLength }) => {
    const isHere = listing.addresses.some((one) => one.linkIndex === link.index && one.address.equals(address));
    if (!isHere || address.family !== family) return [];
    return [{ prefix: Cidr.of(address, prefixLength), ...(isAssigned(address, listing) ? { src: address } : {}) }];
  });
  const connected = own.map(
    ({ prefix, src }): RouteSpec => ({
      dst: prefix,
      linkIndex: link.index,
      scope: family === 4 ? "link" : "global",
      ...(src === undefined ? {} : { src }),
    }),
  );
  if (own.length === 0) return connected;
  if (gateway === undefined) {
    const [first] = connected;
    const isPointToPoint = (link.flags & IFF_POINTOPOINT) !== 0;
    return first !== undefined && isPointToPoint ? [...connected, { ...first, dst: DEFAULT[family] }] : connected;
  }
  const reachable = own.some(({ prefix }) => prefix.contains(gateway)) || LINK_LOCAL.contains(gateway);
  const src = own.find((one) => one.prefix.contains(gateway))?.src ?? own[0]?.src;
  return [
    ...connected,
    {
      dst: DEFAULT[family],
      gateway,
      linkIndex: link.index,
      scope: "global",
      ...(reachable ? {} : { onlink: true }),
      ...(src === undefined ? {} : { src }),
    },
  ];
}

/** Every route of the main table that leads over the link. */
function copies(link: Link, listing: KernelListing, family: IpFamily): RouteSpec[] {
  const routes = listing.routes
    .filter((route) => route.family === family && route.table === TABLE_MAIN && route.type === "unicast")
    .flatMap((route) => wayOver(route, link.index))
    .map((route) => (route.src !== undefined && !isAssigned(route.src, listing) ? { ...route, src: undefined } : route))
    .map((route) => (LINK_LOCAL.contains(route.dst) ? { ...route, metric: link.index } : route));
  // The main table keeps a route whose gateway is no longer in any prefix. The kernel accepts a copy of that route only with `onlink`.
  const reached = <Way extends Pick<NextHop, "gateway" | "onlink"> | RouteSpec>(way: Way): Way =>
    isOnLink(way.gateway, link.index, routes) ? way : { ...way, onlink: true };
  return routes.map((route) =>
    route.multipath === undefined ? reached(route) : { ...route, multipath: route.multipath.map(reached) },
  );
}

/** Returns true if the kernel accepts the address as `src`: an interface must have it, and it must have passed duplicate address detection. */
function isAssigned(address: IpAddress, { addresses }: KernelListing): boolean {
  return addresses.some((own) => own.address.equals(address) && !own.tentative && !own.dadFailed);
}

/** The part of a route that leads over the link; empty if no part does. */
function wayOver(route: Route, linkIndex: number): RouteSpec[] {
  const { dst, scope, src, metric, mtu, encap, onlink, gateway, multipath } = route;
  const common: RouteSpec = { dst, scope, src, metric, mtu };
  if (multipath === undefined)
    return route.linkIndex === linkIndex ? [{ ...common, linkIndex, gateway, onlink, encap }] : [];
  const hops = multipath.filter((hop) => hop.linkIndex === linkIndex);
  const [only] = hops;
  if (only === undefined) return [];
  if (hops.length > 1) return [{ ...common, multipath: hops }];
  return [{ ...common, linkIndex, gateway: only.gateway, onlink: only.onlink, encap: only.encap }];
}

/** Pure: compares two lists of hops of multipath routes, as {@link sameRoute} compares routes. */
function sameHops(a: readonly NextHop[] = [], b: readonly NextHop[] = []): boolean {
  return a.length === b.length && a.every((hop, at) => wayText(hop) === wayText(b[at] ?? { weight: 0 }));
}

function wayText({ linkIndex, gateway, onlink, weight }: Partial<NextHop>): string {
  return [linkIndex, gateway, onlink === true, weight ?? 1].join(" ");
}

/** Pure: whether the kernel's route equals the wanted route. Both have the same {@link routeKey}. */
export function sameRoute(is: Route, wanted: RouteSpec): boolean {
  const type = wanted.type ?? "unicast";
  if (is.type !== type) return false;
  // IPv6 reports the loopback device for unreachable routes.
  if (type === "unreachable") return true;
  return (
    wayText(is) === wayText(wanted as Partial<NextHop>) &&
    sameHops(is.multipath, wanted.multipath) &&
    String(is.src) === String(wanted.src) &&
    is.mtu === wanted.mtu &&
    (is.family === 6 || is.scope === wanted.scope) &&
    isEqual(is.encap, wanted.encap)
  );
}

/**
 * Pure: the route to Services over the cluster's interface: in IPv4 via the node's own address; in IPv6 without a gateway,
 * because the kernel does not accept an own address as gateway.
 */
export function serviceRoute(prefix: Cidr, link: Link, own: IpAddress, place: Place): RouteSpec {
  const way = prefix.family === 4 ? { gateway: own } : { src: own };
  return { dst: prefix, linkIndex: link.index, scope: "global", ...way, ...place };
}
