import { KernelError, type KernelErrorCode } from "#kernel/errors";
import { type NetlinkConnection, NLM_F, RTM } from "#kernel/netlink";
import { decodeRoute, encodeRoute, encodeRouteDump, encodeRouteKey, encodeRouteQuery } from "./codec.ts";
import { TABLE_MAIN } from "./constants.ts";
import type { Route, RouteFilter, RouteKey, RoutePort, RouteQuery, RouteSpec } from "./types.ts";

/** The routes of the namespace that `connection` is in. The connection stays the caller's. */
export function openRoutePort(connection: NetlinkConnection): RoutePort {
  const put = (verb: string, flags: number, spec: RouteSpec): void => {
    checkRoute(verb, spec);
    connection.change({ type: RTM.NEWROUTE, flags, body: encodeRoute(spec), what: () => describeRoute(verb, spec) });
  };
  return {
    list: (filter) => listRoutes(connection, filter),
    add: (spec) => put("add", NLM_F.CREATE | NLM_F.EXCL, spec),
    replace: (spec) => put("replace", NLM_F.CREATE | NLM_F.REPLACE, spec),
    delete(key) {
      connection.change({ type: RTM.DELROUTE, body: encodeRouteKey(key), what: () => describeRoute("delete", key) });
    },
    lookup: (query) => lookUp(connection, query),
  };
}

function lookUp(connection: NetlinkConnection, query: RouteQuery): Route {
  const what = (): string => describeQuery(query);
  const route = connection.get({ type: RTM.GETROUTE, body: encodeRouteQuery(query), what }, ({ payload }) =>
    decodeRoute(payload),
  );
  if (route === undefined) throw new KernelError("failed", `Cannot ${what()}: the answer is no entry of a table`);
  // IPv4 answers with an error, IPv6 with the route.
  const refusal = refusalOf(route);
  if (refusal !== undefined) throw new KernelError(refusal, `Cannot ${what()}: the route is ${route.type}`);
  return route;
}

/** The error for a packet of a route of this type, `undefined` for a route that leads somewhere. */
export function refusalOf({ type }: Pick<Route, "type">): KernelErrorCode | undefined {
  switch (type) {
    case "unreachable":
    case "throw":
      return "unreachable";
    case "prohibit":
      return "not-permitted";
    case "blackhole":
      return "invalid";
    default:
      return undefined;
  }
}

/** `look up the route to 10.0.0.1 with mark 5`. */
export function describeQuery({ destination, source, mark = 0 }: RouteQuery): string {
  const from = source === undefined ? "" : ` from ${source}`;
  return `look up the route to ${destination}${from}${mark === 0 ? "" : ` with mark ${mark}`}`;
}

function listRoutes(connection: NetlinkConnection, filter: RouteFilter): Route[] {
  const body = encodeRouteDump(filter, connection.strict);
  const request = { type: RTM.GETROUTE, body, what: () => `list IPv${filter.family} routes` };
  try {
    return connection.dump(request, ({ type, payload }) => {
      const route = type === RTM.NEWROUTE ? decodeRoute(payload) : undefined;
      return route !== undefined && matchesRouteFilter(route, filter) ? route : undefined;
    });
  } catch (error) {
    // The kernel refuses to filter by a table without routes or by a deleted link; the list is empty in both cases.
    const filtered = filter.table !== undefined || filter.linkIndex !== undefined;
    if (filtered && error instanceof KernelError && (error.code === "not-found" || error.code === "no-device"))
      return [];
    throw error;
  }
}

/** True if the route matches all fields of the filter; a multipath route is on each of its links. */
export function matchesRouteFilter(route: Route, filter: RouteFilter): boolean {
  if (route.family !== filter.family) return false;
  if (filter.table !== undefined && route.table !== filter.table) return false;
  if (filter.protocol !== undefined && route.protocol !== filter.protocol) return false;
  if (filter.linkIndex === undefined || route.linkIndex === filter.linkIndex) return true;
  return route.multipath?.some((hop) => hop.linkIndex === filter.linkIndex) ?? false;
}

/** Throws {@link KernelError} `invalid` for a route that cannot be encoded or is contradictory. */
export function checkRoute(verb: string, spec: RouteSpec): void {
  const why = faultOf(spec);
  if (why !== undefined) {
    throw new KernelError("invalid", `Cannot ${describeRoute(verb, spec)}: ${why}`, { errno: "EINVAL" });
  }
}

function faultOf(spec: RouteSpec): string | undefined {
  const { table = TABLE_MAIN, protocol = 0, multipath } = spec;
  if (!Number.isInteger(table) || table < 1 || table > 0xffff_ffff)
    return `${table} is not a table number: use 1 to 2^32-1`;
  if (!Number.isInteger(protocol) || protocol < 0 || protocol > 255)
    return `${protocol} is not a protocol number: use 0 to 255`;
  if (spec.src !== undefined && spec.src.family !== spec.dst.family)
    return `source ${spec.src} has another address family`;
  if (multipath === undefined) return undefined;
  if (multipath.length === 0) return "a multipath route needs next hops";
  if (spec.gateway !== undefined || spec.linkIndex !== undefined)
    return "give either next hops or one gateway and link";
  const odd = multipath.find((hop) => !Number.isInteger(hop.weight) || hop.weight < 1 || hop.weight > 256);
  return odd === undefined ? undefined : `weight ${odd.weight} is out of range: use 1 to 256`;
}

/** `add route 10.0.0.0/24 via 192.0.2.1 dev 3 table 119`. */
export function describeRoute(verb: string, spec: RouteSpec | RouteKey): string {
  const parts = [verb, "route"];
  if (spec.type !== undefined && spec.type !== "unicast") parts.push(spec.type);
  parts.push(spec.dst.prefixLength === 0 ? `default (${spec.dst})` : String(spec.dst));
  if (spec.gateway !== undefined) parts.push(`via ${spec.gateway}`);
  if (spec.linkIndex !== undefined) parts.push(`dev ${spec.linkIndex}`);
  if (spec.table !== undefined) parts.push(`table ${spec.table}`);
  if (spec.metric !== undefined) parts.push(`metric ${spec.metric}`);
  return parts.join(" ");
}
