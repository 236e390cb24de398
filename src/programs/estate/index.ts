/**
 * The estates of the programs of a node on the disk (docs/design/estate.md).
 *
 * Owns: the folders, and which set a running daemon leaves. Does not know: any program, and how an estate is read.
 *
 * ```ts
 * leaveEstate("coild", coildEstate(values), { log });
 * ```
 */
export { ownFolders } from "./folders.ts";
export { leaveEstate } from "./leave-estate.ts";
