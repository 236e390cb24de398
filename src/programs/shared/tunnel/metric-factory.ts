import { Counter, Gauge, Histogram, type LabelValues, type Registry, startAtZero } from "#base/metrics";
import { VERSION } from "#base/version";

/** Konnectivity's prefix of metric names, so that dashboards for Konnectivity work. */
const PREFIX = "konnectivity_network_proxy_";

/** Adds 1 to the series of two label values. */
export type PacketCounter = (first: string, second: string) => void;

/** Makes the metrics of one of the programs, with Konnectivity's prefix. */
export function metricFactory(registry: Registry, subsystem: "server" | "agent") {
  const common = (name: string, help: string, labelNames: readonly string[]) => ({
    name: `${PREFIX}${subsystem}_${name}`,
    help,
    labelNames: [...labelNames],
    registers: [registry],
  });
  return {
    /** A counter. With `values`, all these label values start at 0; without `values`, a label value appears when it is first counted. */
    counter: (name: string, help: string, labels: readonly string[] = [], values?: LabelValues<string>) => {
      const counter = new Counter(common(name, help, labels));
      if (values !== undefined) startAtZero(counter, values);
      return counter;
    },
    gauge: (name: string, help: string, labels: readonly string[] = []) => new Gauge(common(name, help, labels)),
    /** A gauge whose values `read` sets at each scrape. Values of several workers are summed, or the greatest is taken. */
    observedGauge: (
      name: string,
      help: string,
      labels: readonly string[],
      read: (gauge: Gauge) => void,
      { aggregator = "sum" }: { readonly aggregator?: "sum" | "max" } = {},
    ) =>
      new Gauge({
        ...common(name, help, labels),
        aggregator,
        collect() {
          read(this);
        },
      }),
    /** A counter whose totals `read` returns at each scrape. */
    observedCounter: (name: string, help: string, label: string, read: () => Readonly<Record<string, number>>) =>
      new Counter({
        ...common(name, help, [label]),
        collect() {
          this.reset();
          for (const [value, total] of Object.entries(read())) this.inc({ [label]: value }, total);
        },
      }),
    /** A counter with two labels for what happens with each packet: counting makes no object. Label values appear when they are first counted. */
    packetCounter: (name: string, help: string, [first, second]: readonly [string, string]): PacketCounter => {
      const counts = new Map<string, Map<string, number>>();
      new Counter({
        ...common(name, help, [first, second]),
        collect() {
          this.reset();
          for (const [one, others] of counts) {
            for (const [other, total] of others) this.inc({ [first]: one, [second]: other }, total);
          }
        },
      });
      return (one, other) => {
        let others = counts.get(one);
        if (others === undefined) {
          others = new Map();
          counts.set(one, others);
        }
        others.set(other, (others.get(other) ?? 0) + 1);
      };
    },
    /** A histogram. The default buckets are those of Prometheus. */
    histogram: (name: string, help: string, buckets?: readonly number[], labels: readonly string[] = []) =>
      new Histogram({ ...common(name, help, labels), ...(buckets === undefined ? {} : { buckets: [...buckets] }) }),
  };
}

/** Declares `…_build_info`, whose value is always 1 and whose labels have the version. */
export function buildInfo(registry: Registry, subsystem: "server" | "agent"): void {
  const labels = { version: VERSION, runtime: `node ${process.versions.node}` };
  metricFactory(registry, subsystem).observedGauge(
    "build_info",
    "Always 1; the labels describe the build.",
    Object.keys(labels),
    (gauge) => gauge.set(labels, 1),
    { aggregator: "max" },
  );
}
