/**
 * Counters, log lines and health of the proxy (docs/spec/uplink-proxy.md#8).
 *
 * Owns: counters, the /healthz object, EVE's metrics file, log lines, Prometheus metrics. Does not know: which code does the counted
 * work.
 *
 * ```ts
 * const counters = new Counters(clock);
 * counters.record({ kind: "request", count: 1 }); // events are plain data: other threads send theirs
 * ```
 */
export { Counters } from "./counters.ts";
export { DIRECT, type Recorder, type StatsEvent } from "./events.ts";
export { type HealthInput, healthReport, listenText } from "./health-report.ts";
export { LogLines, printable } from "./log-lines.ts";
export { METRICS_MAP_PATH, MetricsFile, readMetricsFile } from "./metrics-file.ts";
export { MetricsMap } from "./metrics-map.ts";
export { uplinkProxyMetrics } from "./prometheus.ts";
export { statsText } from "./stats-text.ts";
export { Traffic } from "./traffic.ts";
