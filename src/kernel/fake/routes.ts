import type { IpAddress } from "#base/ip";
import type { NextHop } from "#kernel/route";
import {
  checkRoute,
  defaultRouteScope,
  describeQuery,
  describeRoute,
  matchesRouteFilter,
  type Route,
  type RouteFilter,
  type RouteKey,
  type RoutePort,
  type RouteQuery,
  type RouteSpec,
  refusalOf,
} from "#kernel/route";
import type { FakeContext } from "./context.ts";
import { refuse } from "./faults.ts";
import type { FakeNamespace } from "./namespace.ts";

const TABLE_MAIN = 254;
const PROTOCOL_BOOT = 3;
const IPV6_METRIC = 1024;

/** The routes of a fake namespace. */
export class FakeRoutePort implements RoutePort {
  readonly #context: FakeContext;
  readonly #ns: FakeNamespace;

  constructor(context: FakeContext, ns: FakeNamespace) {
    this.#context = context;
    this.#ns = ns;
  }

  list(filter: RouteFilter): Route[] {
    this.#context.faults.check("routes.list", `list IPv${filter.family} routes`);
    return this.#ns.routes.filter((route) => matchesRouteFilter(route, filter));
  }

  add(spec: RouteSpec): void {
    const { route, what } = this.#begin("add", spec);
    if (this.#find(route) !== undefined) throw refuse("EEXIST", what);
    this.#ns.routes.push(route);
  }

  replace(spec: RouteSpec): void {
    const { route } = this.#begin("replace", spec);
    const old = this.#find(route);
    if (old === undefined) this.#ns.routes.push(route);
    else this.#ns.routes = this.#ns.routes.map((known) => (known === old ? route : known));
  }

  delete(key: RouteKey): void {
    const what = describeRoute("delete", key);
    this.#context.faults.check("routes.delete", what);
    const found = this.#ns.routes.find((route) => matchesKey(route, key));
    if (found === undefined) throw refuse("ESRCH", what);
    this.#ns.routes = this.#ns.routes.filter((route) => route !== found);
  }

  lookup(query: RouteQuery): Route {
    const what = describeQuery(query);
    this.#context.faults.check("routes.lookup", what);
    const { destination, source, mark = 0 } = query;
    const { family } = destination;
    const rules = this.#ns.rules.filter((rule) => rule.family === family).sort((a, b) => a.priority - b.priority);
    for (const rule of rules) {
      const { action, from, to, iif, oif, fwmark, fwmask = 0xffff_ffff, table, invert = false } = rule;
      const isMatch =
        (from === undefined || (source !== undefined && from.contains(source))) &&
        (to === undefined || to.contains(destination)) &&
        (iif === undefined || iif === "lo") &&
        oif === undefined &&
        (fwmark === undefined || ((mark ^ fwmark) & fwmask) === 0);
      if (isMatch === invert || action !== "lookup") continue;
      const route = this.#longest(table, destination);
      if (route === undefined || route.type === "throw") continue;
      if (refusalOf(route) === undefined) return route;
      throw refuse(
        route.type === "unreachable" ? "EHOSTUNREACH" : route.type === "prohibit" ? "EACCES" : "EINVAL",
        what,
      );
    }
    throw refuse("ENETUNREACH", what);
  }

  /** The route of the longest prefix, and of these the one with the lowest metric. */
  #longest(table: number, destination: IpAddress): Route | undefined {
    return this.#ns.routes
      .filter(
        (route) => route.table === table && route.family === destination.family && route.dst.contains(destination),
      )
      .sort((a, b) => b.dst.prefixLength - a.dst.prefixLength || (a.metric ?? 0) - (b.metric ?? 0))[0];
  }

  #begin(verb: "add" | "replace", spec: RouteSpec): { readonly route: Route; readonly what: string } {
    checkRoute(verb, spec);
    const what = describeRoute(verb, spec);
    this.#context.faults.check(`routes.${verb}`, what);
    if (spec.encap !== undefined && this.#context.lacks.has("encap")) throw refuse("EOPNOTSUPP", what);
    const way = this.#resolve(spec, what);
    if (spec.src !== undefined && !this.#ns.isLocal(spec.src)) throw refuse("EINVAL", what, "Invalid source address");
    return { what, route: { ...build(spec), ...way } };
  }

  /** Like the kernel's fib_check_nh: the link must exist, be up, and reach the gateway. */
  #resolve(spec: RouteSpec, what: string): Partial<Route> {
    const type = spec.type ?? "unicast";
    if (type === "blackhole" || type === "unreachable" || type === "prohibit" || type === "throw") {
      return spec.dst.family === 6 ? { linkIndex: 1 } : {};
    }
    if (spec.multipath !== undefined) {
      return { multipath: spec.multipath.map((hop) => ({ ...hop, ...this.#resolveHop(hop, what, spec) })) };
    }
    return this.#resolveHop(spec, what, spec);
  }

  #resolveHop(hop: Partial<NextHop> | RouteSpec, what: string, spec: RouteSpec): { linkIndex: number } {
    const { gateway, linkIndex, onlink } = hop;
    const link = linkIndex === undefined ? undefined : this.#ns.links.get(linkIndex);
    if (linkIndex !== undefined && link === undefined) throw refuse("ENODEV", what);
    if (gateway === undefined) {
      if (link === undefined) throw refuse("ENODEV", what);
      if (!link.up) throw refuse("ENETDOWN", what, "Device for nexthop is not up");
      return { linkIndex: link.index };
    }
    const own = this.#ns.addresses.find(({ address }) => address.equals(gateway));
    // IPv4 accepts a gateway that is an address of this host; IPv6 does not.
    if (own !== undefined && gateway.family === 6) throw refuse("EINVAL", what, "Gateway can not be a local address");
    if (own !== undefined) return { linkIndex: linkIndex ?? own.linkIndex };
    if (gateway.isLinkLocal && gateway.family === 6 && link === undefined) throw refuse("EINVAL", what, "dev required");
    if (link !== undefined && !link.up) throw refuse("ENETDOWN", what, "Nexthop device is not up");
    if (link !== undefined && (onlink === true || (gateway.family === 6 && gateway.isLinkLocal))) {
      return { linkIndex: link.index };
    }
    const via = this.#ns.routes.find(
      (route) => route.linkIndex !== undefined && this.#reaches(route, gateway, linkIndex),
    );
    if (via?.linkIndex !== undefined) return { linkIndex: via.linkIndex };
    if (spec.dst.family === 4) throw refuse("ENETUNREACH", what, "Nexthop has invalid gateway");
    throw refuse("EHOSTUNREACH", what, "Nexthop has invalid gateway");
  }

  #reaches(route: Route, gateway: NonNullable<NextHop["gateway"]>, linkIndex: number | undefined): boolean {
    return (
      route.type === "unicast" &&
      route.gateway === undefined &&
      (linkIndex === undefined || route.linkIndex === linkIndex) &&
      route.family === gateway.family &&
      route.dst.contains(gateway) &&
      (route.dst.prefixLength > 0 || linkIndex !== undefined)
    );
  }

  #find(wanted: Route): Route | undefined {
    return this.#ns.routes.find(
      (route) =>
        route.table === wanted.table && route.dst.equals(wanted.dst) && (route.metric ?? 0) === (wanted.metric ?? 0),
    );
  }
}

function build(spec: RouteSpec): Route {
  const { dst, gateway, src, onlink, mtu, encap } = spec;
  const metric = spec.metric ?? (dst.family === 6 ? IPV6_METRIC : undefined);
  return {
    family: dst.family,
    dst,
    table: spec.table ?? TABLE_MAIN,
    protocol: spec.protocol ?? PROTOCOL_BOOT,
    scope: defaultRouteScope(spec),
    type: spec.type ?? "unicast",
    ...(gateway === undefined ? {} : { gateway }),
    ...(src === undefined ? {} : { src }),
    ...(onlink === true ? { onlink } : {}),
    ...(metric === undefined || (metric === 0 && dst.family === 4) ? {} : { metric }),
    ...(mtu === undefined ? {} : { mtu }),
    ...(encap === undefined
      ? {}
      : { encap: { ...encap, ...(encap.id === undefined ? {} : { flags: encap.flags ?? 4 }) } }),
  };
}

function matchesKey(route: Route, key: RouteKey): boolean {
  return (
    route.dst.equals(key.dst) &&
    route.table === (key.table ?? TABLE_MAIN) &&
    (key.protocol === undefined || route.protocol === key.protocol) &&
    (key.type === undefined || route.type === key.type) &&
    (key.linkIndex === undefined || route.linkIndex === key.linkIndex) &&
    (key.metric === undefined || (route.metric ?? 0) === key.metric) &&
    (key.gateway === undefined || route.gateway?.equals(key.gateway) === true)
  );
}
