import { Gauge, type Registry } from "#base/metrics";
import type { PoolManager, PoolStats } from "#features/ipam";

/** Declares the metrics of pools. A pool has series as long as it exists. There are no series before the call of `observe`. */
export function poolMetrics(registry: Registry): { readonly observe: (pools: Pick<PoolManager, "stats">) => void } {
  let pools: Pick<PoolManager, "stats"> | undefined;
  const gauge = (name: string, help: string, value: (stats: PoolStats) => number): void => {
    new Gauge({
      name,
      help,
      labelNames: ["pool"],
      registers: [registry],
      collect() {
        this.reset();
        for (const stats of pools?.stats ?? []) this.set({ pool: stats.pool }, value(stats));
      },
    });
  };
  gauge("coil_controller_max_blocks", "The maximum number of address blocks of a pool.", (stats) => stats.maxBlocks);
  gauge(
    "coil_controller_allocated_blocks",
    "Address blocks of a pool that belong to nodes.",
    (stats) => stats.allocatedBlocks,
  );
  return {
    observe: (given) => {
      pools = given;
    },
  };
}
