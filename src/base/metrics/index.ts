/**
 * Prometheus metrics in a registry of the program's own: nothing is registered globally, so two programs can live in
 * one process and tests start clean.
 */
import { Counter, collectDefaultMetrics, Gauge, Histogram, Registry } from "prom-client";

export { Counter, Gauge, Histogram, Registry };

/** Observers of the process are for good: `prom-client` never ends them. So there is one set, however many registries are made. */
let ofProcess: Registry | undefined;

/** A registry with the process metrics (`process_resident_memory_bytes`, `nodejs_eventloop_lag_seconds`, …). */
export function createRegistry(): Registry {
  if (ofProcess === undefined) {
    ofProcess = new Registry();
    collectDefaultMetrics({ register: ofProcess });
  }
  const registry = new Registry();
  for (const { name } of ofProcess.getMetricsAsArray()) {
    const metric = ofProcess.getSingleMetric(name);
    if (metric !== undefined) registry.registerMetric(metric);
  }
  return registry;
}
