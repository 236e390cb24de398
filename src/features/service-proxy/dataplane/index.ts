/**
 * The kernel's side of the service proxy: one table for each family, kept as wanted.
 *
 * Owns: {@link DataPlane}, its table, transactions, adoption and takeover; {@link checkConstructs}. Refuses to know: the API, when to sync.
 */
export { checkConstructs } from "./constructs.ts";
export { DataPlane } from "./data-plane.ts";
export { DataPlaneError } from "./errors.ts";
export { GenerationTracker } from "./generation-tracker.ts";
export { REPLACEMENT_SUFFIX } from "./takeover.ts";
export type { Desired, SyncReport } from "./types.ts";
