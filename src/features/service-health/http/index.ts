/**
 * The HTTP listeners of node health.
 *
 * Owns: sockets, limits, retries, {@link HealthServer}, {@link MetricsServer}. Refuses to know: what makes a node healthy.
 */
export { HealthServer, type HealthServerDeps, type HealthServerOptions, LINGER_MS, reply } from "./health-server.ts";
export { BIND_RETRY_MS } from "./keep-listening.ts";
export {
  type DebugAnswer,
  type DebugRequest,
  type DebugRoutes,
  MetricsServer,
  type MetricsServerDeps,
  type MetricsServerOptions,
} from "./metrics-server.ts";
export {
  HEADERS_TIMEOUT_MS,
  type Listener,
  MAX_CONNECTIONS,
  ProbeHttp,
  type ProbeHttpDeps,
  type ProbeHttpOptions,
} from "./probe-http.ts";
