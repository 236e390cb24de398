/**
 * The HTTP listeners of node health.
 *
 * Owns: sockets, limits, retries, {@link HealthServer}, {@link MetricsServer}. Does not know: what makes a node healthy.
 */
export { HealthServer, LINGER_MS } from "./health-server.ts";
export { MetricsServer } from "./metrics-server.ts";
export { type Listener, MAX_CONNECTIONS, ProbeHttp, type ProbeHttpDeps } from "./probe-http.ts";
