/**
 * Prometheus metrics in a registry of the program's own: nothing is registered globally, so two programs can live in
 * one process and tests start clean.
 */
import {
  AggregatorRegistry,
  Counter,
  collectDefaultMetrics,
  Gauge,
  Histogram,
  type MetricObject,
  Registry,
} from "prom-client";
import { VERSION } from "#base/version";
import { loopDelayMetrics } from "./loop-delay.ts";

export { type LabelValues, startAtZero } from "./zeros.ts";
export { Counter, Gauge, Histogram, Registry };

/** The metric whose label `version` is the version of the process. */
export const BUILD_INFO = "isthmus_build_info";

/** The metric that counts what {@link countRefusedScrape} is called for. */
export const REFUSED_SCRAPES = "isthmus_metrics_refused_total";

/** The metrics of the process. `prom-client` never stops their observers, so all registries share this one set. */
let ofProcess: Registry | undefined;
let refusedScrapes: Counter | undefined;

/** An interval that never ends, in milliseconds: the library must not watch the event loop, because we do. */
const NEVER_MS = 2 ** 31 - 1;

/** A registry with the metrics of the process (`process_resident_memory_bytes`, `nodejs_eventloop_lag_seconds`, …), {@link BUILD_INFO} among them. */
export function createRegistry(): Registry {
  if (ofProcess === undefined) {
    ofProcess = new Registry();
    collectDefaultMetrics({ register: ofProcess, eventLoopMonitoringPrecision: NEVER_MS });
    for (const { name } of ofProcess.getMetricsAsArray()) {
      if (/^nodejs_eventloop_lag_.+_seconds$/.test(name)) ofProcess.removeSingleMetric(name);
    }
    loopDelayMetrics(ofProcess);
    new Gauge({
      name: BUILD_INFO,
      help: "Always 1; the label has the version of the program.",
      labelNames: ["version"],
      registers: [ofProcess],
      aggregator: "first",
    }).set({ version: VERSION }, 1);
    refusedScrapes = new Counter({
      name: REFUSED_SCRAPES,
      help: "Connections and requests of clients that --metrics-from does not name.",
      registers: [ofProcess],
    });
  }
  const registry = new Registry();
  for (const { name } of ofProcess.getMetricsAsArray()) {
    const metric = ofProcess.getSingleMetric(name);
    if (metric !== undefined) registry.registerMetric(metric);
  }
  return registry;
}

/** Counts a client that may not read metrics. */
export function countRefusedScrape(): void {
  refusedScrapes?.inc();
}

/** The values of a registry, for a process that adds them up. */
export type MetricValues = readonly MetricObject[];

/** The values of all metrics. */
export function readMetrics(registry: Registry): Promise<MetricValues> {
  return registry.getMetricsAsJSON();
}

/**
 * Adds up the metrics of several processes; returns the Prometheus text format. The `aggregator` of a metric says what is done with its values;
 * without one they are summed.
 */
export function sumMetrics(parts: readonly MetricValues[]): Promise<string> {
  return AggregatorRegistry.aggregate(parts.map((part) => [...part])).metrics();
}
