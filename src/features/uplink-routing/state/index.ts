/**
 * The uplinks as the kernel and the settings together show them.
 *
 * Owns: reading the kernel's listings, and pure functions from them to a snapshot. Does not know: reachability, and which
 * code programs routes.
 *
 * ```ts
 * const snapshot = makeSnapshot({ settings, ready: true, listing: readKernel(stack) });
 * ```
 */

export { type KernelListing, linkOf, readKernel, TABLE_LOCAL, TABLE_MAIN } from "./listing.ts";
export { parseResolverData, readResolverData } from "./resolver-data.ts";
export { bypassOf, makeSnapshot, type ResolverData, type SnapshotInputs } from "./snapshot.ts";
export { canBeSource, isUsableSource } from "./source-address.ts";
