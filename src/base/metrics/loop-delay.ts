import { createHistogram } from "node:perf_hooks";
import { Gauge, type Registry } from "prom-client";
import { type Clock, Lateness, systemClock } from "#base/clock";

const NANOSECONDS = 1e6;

/** The values of the metrics; each key is the end of a metric's name. */
const METRICS = {
  min: "The least delay of the event loop since the last answer.",
  max: "The greatest delay of the event loop since the last answer.",
  mean: "The mean delay of the event loop since the last answer.",
  stddev: "The standard deviation of the event loop's delays since the last answer.",
  p50: "The 50th percentile of the event loop's delays since the last answer.",
  p90: "The 90th percentile of the event loop's delays since the last answer.",
  p99: "The 99th percentile of the event loop's delays since the last answer.",
} as const;
type Part = keyof typeof METRICS;

/**
 * Measures once a second how late timers fire. Node.js's own `monitorEventLoopDelay`, which `prom-client` uses, wakes the process a hundred
 * times a second; in an idle process that is most of the work.
 */
export class LoopDelay {
  readonly #delays = createHistogram();

  constructor(clock: Clock = systemClock) {
    // A histogram cannot store values below 1. The measurements end with the process.
    new Lateness(clock, (lateMs) => this.#delays.record(Math.max(1, Math.round(lateMs * NANOSECONDS))));
  }

  /** Returns the delays in seconds, from the samples since the last call; zeros if there is no sample. */
  take(): Readonly<Record<Part, number>> {
    const delays = this.#delays;
    const seconds = (nanoseconds: number): number => (delays.count === 0 ? 0 : nanoseconds / 1e9);
    const taken = {
      min: seconds(delays.min),
      max: seconds(delays.max),
      mean: seconds(delays.mean),
      stddev: seconds(delays.stddev),
      p50: seconds(delays.percentile(50)),
      p90: seconds(delays.percentile(90)),
      p99: seconds(delays.percentile(99)),
    };
    delays.reset();
    return taken;
  }
}

/** Registers `nodejs_eventloop_lag_{min,max,mean,…}_seconds`. */
export function loopDelayMetrics(registry: Registry, delay: LoopDelay = new LoopDelay()): void {
  const gauges = new Map<Part, Gauge>();
  const collect = (): void => {
    const taken = delay.take();
    for (const [part, gauge] of gauges) gauge.set(taken[part]);
  };
  for (const [part, help] of Object.entries(METRICS) as [Part, string][]) {
    const name = `nodejs_eventloop_lag_${part}_seconds`;
    // The first metric that is read collects for all of them.
    const how = part === "min" ? { collect } : {};
    // Of several processes: the worst one, as each has an event loop of its own.
    const aggregator = part === "min" ? "min" : "max";
    gauges.set(part, new Gauge({ name, help, registers: [registry], aggregator, ...how }));
  }
}
