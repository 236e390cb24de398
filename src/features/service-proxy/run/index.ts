/**
 * When tables are synced: pace, order, repairs.
 *
 * Owns: {@link FamilyProxy}, {@link DriftWatch}. Refuses to know: the API, flags.
 */
export { DriftWatch, type DriftWatchDeps, type WatchedFamily } from "./drift-watch.ts";
export { FamilyProxy, type FamilyProxyDeps, type FamilyProxyOptions, type SyncObserver } from "./family-proxy.ts";
export type { LostClaim } from "./lost-claims.ts";
