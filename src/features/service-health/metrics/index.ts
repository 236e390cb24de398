/**
 * kube-proxy's metrics, by its names.
 *
 * Owns: names, labels, buckets. Refuses to know: when things happen.
 */
export { DURATION_BUCKETS, PROGRAMMING_BUCKETS } from "./buckets.ts";
export { healthMetrics } from "./health-metrics.ts";
export { programMetrics, WatchMetrics } from "./program-metrics.ts";
export { SyncMetrics } from "./sync-metrics.ts";
