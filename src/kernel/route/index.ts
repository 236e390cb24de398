/**
 * Routes of one namespace, in any table, with multipath, gateways of the other family and lightweight-tunnel encap.
 *
 * Owns: {@link RoutePort} and its rtnetlink encoding. Does not know: the owners of tables and protocol numbers.
 *
 * ```ts
 * stack.routes.replace({ dst: Cidr.host(podAddress), linkIndex: host.index, table: 116, protocol: 30 });
 * const ours = stack.routes.list({ family: 4, table: 116, protocol: 30 });
 * ```
 */
export { decodeRoute, defaultRouteScope } from "./codec.ts";
export { checkRoute, describeQuery, describeRoute, matchesRouteFilter, openRoutePort, refusalOf } from "./port.ts";
export type {
  NextHop,
  Route,
  RouteEncap,
  RouteFilter,
  RouteKey,
  RoutePort,
  RouteQuery,
  RouteSpec,
  RouteType,
} from "./types.ts";
