import { Counter, Gauge, type Registry } from "#base/metrics";

/** Declares the metrics of `coil-router`. Each metric has the name of this node as a label. */
export function coilRouterMetrics(registry: Registry) {
  const labels = { labelNames: ["node"] as const, registers: [registry] };
  return {
    syncs: new Counter({ name: "coil_router_syncs_total", help: "Syncs of routes.", ...labels }),
    routes: new Gauge({ name: "coil_router_routes_synced", help: "Routes that the last sync wanted.", ...labels }),
    skipped: new Gauge({
      name: "coil_router_blocks_skipped",
      help: "Prefixes of blocks that cannot be routed, because their nodes have no address of the family and had none.",
      ...labels,
    }),
  };
}
