/**
 * Keeps one nftables table for each family in its wanted state.
 *
 * Owns: {@link DataPlane}, its table, transactions, adoption and takeover; {@link checkConstructs}. Does not know: the API, when to sync.
 */
export { checkConstructs } from "./constructs.ts";
export { DataPlane } from "./data-plane.ts";
export { DataPlaneError } from "./errors.ts";
export { GenerationTracker } from "./generation-tracker.ts";
export { isOwnTable } from "./observed-table.ts";
export { keepRemoved } from "./removed-front-ends.ts";
export { REPLACEMENT_SUFFIX } from "./takeover.ts";
export type { SyncReport, WantedState } from "./types.ts";
