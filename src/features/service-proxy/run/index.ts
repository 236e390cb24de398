/**
 * Decides when tables are synced: pace, order, repairs.
 *
 * Owns: {@link FamilyProxy}, {@link DriftWatch}, {@link AffinityFill}. Does not know: the API, flags.
 */
export { AffinityFill, CROWDED_COUNT_MS } from "./affinity-fill.ts";
export { DriftWatch } from "./drift-watch.ts";
export { FamilyProxy, type SyncObserver } from "./family-proxy.ts";
export type { LostClaim } from "./lost-claims.ts";
export { NodeAwareProxy, type NodeAwareProxyConfig, type ProxyKernel } from "./node-aware-proxy.ts";
