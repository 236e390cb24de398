/**
 * Prometheus metrics in a registry of the program's own: nothing is registered globally, so two programs can live in
 * one process and tests start clean.
 */
import { Counter, collectDefaultMetrics, Gauge, Histogram, Registry } from "prom-client";
import { loopDelayMetrics } from "./loop-delay.ts";

export { type LabelValues, startAtZero } from "./zeros.ts";
export { Counter, Gauge, Histogram, Registry };

/** The metrics of the process. `prom-client` never stops their observers, so all registries share this one set. */
let ofProcess: Registry | undefined;

/** An interval that never ends, in milliseconds: the library must not watch the event loop, because we do. */
const NEVER_MS = 2 ** 31 - 1;

/** A registry with the process metrics (`process_resident_memory_bytes`, `nodejs_eventloop_lag_seconds`, …). */
export function createRegistry(): Registry {
  if (ofProcess === undefined) {
    ofProcess = new Registry();
    collectDefaultMetrics({ register: ofProcess, eventLoopMonitoringPrecision: NEVER_MS });
    for (const { name } of ofProcess.getMetricsAsArray()) {
      if (/^nodejs_eventloop_lag_.+_seconds$/.test(name)) ofProcess.removeSingleMetric(name);
    }
    loopDelayMetrics(ofProcess);
  }
  const registry = new Registry();
  for (const { name } of ofProcess.getMetricsAsArray()) {
    const metric = ofProcess.getSingleMetric(name);
    if (metric !== undefined) registry.registerMetric(metric);
  }
  return registry;
}
