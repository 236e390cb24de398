/**
 * Prometheus metrics in a registry of the program's own: nothing is registered globally, so two programs can live in
 * one process and tests start clean.
 */
import { Counter, collectDefaultMetrics, Gauge, Histogram, Registry } from "prom-client";

export { Counter, Gauge, Histogram, Registry };

/** A registry with the process metrics (`process_resident_memory_bytes`, `nodejs_eventloop_lag_seconds`, …). */
export function createRegistry(): Registry {
  const registry = new Registry();
  collectDefaultMetrics({ register: registry });
  return registry;
}
