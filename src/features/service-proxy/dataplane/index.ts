/**
 * The kernel's side of the service proxy: one table for each family, kept as wanted.
 *
 * Owns: {@link DataPlane}, its table, transactions and adoption. Refuses to know: the API, when to sync.
 */
export { DataPlane, type DataPlaneDeps, type Desired, type SyncReport } from "./data-plane.ts";
export { Ledger } from "./ledger.ts";
