/**
 * kube-proxy's metrics, with its names.
 *
 * Owns: {@link serviceProxyMetrics}, which declares them all, and the code that sets them. Does not know: when events happen.
 */
export { healthMetrics } from "./health-metrics.ts";
export { programMetrics, WatchMetrics } from "./program-metrics.ts";
export { serviceProxyMetrics } from "./service-proxy-metrics.ts";
export { SyncMetrics } from "./sync-metrics.ts";
