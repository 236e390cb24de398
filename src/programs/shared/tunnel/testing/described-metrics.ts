import type { Registry } from "#base/metrics";

export const PREFIX = "konnectivity_network_proxy_";

/** `TYPE NAME LABELS BUCKETS` of every metric. */
export async function describedMetrics(registry: Registry): Promise<string[]> {
  const all = registry.getMetricsAsArray() as unknown as readonly {
    readonly name: string;
    readonly labelNames: readonly string[];
    readonly buckets?: readonly number[];
  }[];
  const types = new Map((await registry.getMetricsAsJSON()).map(({ name, type }) => [name, String(type)]));
  return all
    .map(({ name, labelNames, buckets }) =>
      [types.get(name), name.replace(PREFIX, ""), labelNames.join(","), (buckets ?? []).join(" ")].join("|"),
    )
    .sort();
}
