import type { IpFamily } from "#base/ip";
import { Counter, Gauge, Histogram, type Registry } from "#base/metrics";
import { familyName } from "../state/index.ts";

/** Of every metric of a service proxy. */
const PREFIX = "kubeproxy_";

/** The label of a family. */
export function familyLabel(family: IpFamily): { readonly ip_family: "IPv4" | "IPv6" } {
  return { ip_family: familyName(family) };
}

/** Metrics for each family, all of them there from the start, so that `rate()` sees the first count. */
export function familyMetrics(registry: Registry, families: readonly IpFamily[]) {
  const common = (name: string, help: string) => ({
    name: `${PREFIX}${name}`,
    help,
    labelNames: ["ip_family"] as const,
    registers: [registry],
  });
  return {
    counter(name: string, help: string): Counter<"ip_family"> {
      const counter = new Counter(common(name, help));
      for (const family of families) counter.inc(familyLabel(family), 0);
      return counter;
    },
    gauge(name: string, help: string): Gauge<"ip_family"> {
      const gauge = new Gauge(common(name, help));
      for (const family of families) gauge.set(familyLabel(family), 0);
      return gauge;
    },
    histogram(name: string, help: string, buckets: readonly number[]): Histogram<"ip_family"> {
      const histogram = new Histogram({ ...common(name, help), buckets: [...buckets] });
      for (const family of families) histogram.zero(familyLabel(family));
      return histogram;
    },
  };
}

/** Metrics with other labels or none; prefix them as {@link familyMetrics} does. */
export function plainMetrics(registry: Registry) {
  const common = <Label extends string>(name: string, help: string, labelNames: readonly Label[]) => ({
    name: `${PREFIX}${name}`,
    help,
    labelNames: [...labelNames],
    registers: [registry],
  });
  return {
    counter: <Label extends string = never>(name: string, help: string, labels: readonly Label[] = []) =>
      new Counter<Label>(common(name, help, labels)),
    gauge: <Label extends string = never>(name: string, help: string, labels: readonly Label[] = []) =>
      new Gauge<Label>(common(name, help, labels)),
  };
}
