/**
 * Several clusters behind one address: passes TLS connections on by the server name (SNI) of their clients (docs/spec/tunnel.md#9.7).
 * Nothing is decrypted. A client that sends another cluster's name meets that cluster's server and its CA.
 *
 * Owns: routes and their file, peeking, fail-over between backends, passing bytes on. Does not know: keys, certificates,
 * the tunnel's protocol.
 *
 * ```ts
 * const routes = new RouteTable([await readRouteFile("/etc/isthmus/sni-routes.yaml")]);
 * await using router = new SniRouter({ clock, log, observer: routerMetrics(registry), onBug }, { routes, maxConnections: 10_000 });
 * await router.listen({ port: 8443 });
 * router.setRoutes(new RouteTable([await readRouteFile(path)]));
 * await router.drain({ timeoutMs: 10_000 });
 * ```
 */
export { SniRouterError } from "./errors.ts";
export { routerMetrics } from "./metrics.ts";
export { parseRouteFile, readRouteFile } from "./route-file.ts";
export { SniRouter } from "./router.ts";
export { DEFAULT_ROUTE_NAME, parseBackends, parseRouteFlag, type Route, type RouteSet, RouteTable } from "./routes.ts";
