import { Counter, Gauge, Histogram, type LabelValues, type Registry, startAtZero } from "#base/metrics";
import { VERSION } from "../run-program.ts";

/** Konnectivity's namespace, so that its dashboards work. */
export const PREFIX = "konnectivity_network_proxy_";

/** Which program's metrics. */
export type Subsystem = "server" | "agent";

/** Makes metrics with Konnectivity's prefix. */
export function maker(registry: Registry, subsystem: Subsystem) {
  const common = (name: string, help: string, labelNames: readonly string[]) => ({
    name: `${PREFIX}${subsystem}_${name}`,
    help,
    labelNames: [...labelNames],
    registers: [registry],
  });
  return {
    /** With `values` it has all these label values from the start, at 0; without, each appears with its first count. */
    counter: (name: string, help: string, labels: readonly string[] = [], values?: LabelValues<string>) => {
      const counter = new Counter(common(name, help, labels));
      if (values !== undefined) startAtZero(counter, values);
      return counter;
    },
    gauge: (name: string, help: string, labels: readonly string[] = []) => new Gauge(common(name, help, labels)),
    /** Default buckets: those of Prometheus. */
    histogram: (name: string, help: string, buckets?: readonly number[], labels: readonly string[] = []) =>
      new Histogram({ ...common(name, help, labels), ...(buckets === undefined ? {} : { buckets: [...buckets] }) }),
  };
}

/** `…_build_info`: always 1, with the version in its labels. */
export function buildInfo(registry: Registry, subsystem: Subsystem): void {
  const info = maker(registry, subsystem).gauge("build_info", "Always 1; says which build runs.", [
    "version",
    "runtime",
  ]);
  info.set({ version: VERSION, runtime: `node ${process.versions.node}` }, 1);
}
