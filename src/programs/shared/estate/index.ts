/**
 * The estates of the programs of a node on the disk (docs/design/estate.md).
 *
 * Owns: the folders, which set a running daemon leaves, and which sets a reader takes. Does not know: any program, and how marks are listed or removed.
 *
 * ```ts
 * leaveEstate("coild", coildEstate(values), { log });
 * ```
 */
export { ownFolders, RUN_FOLDER, STATE_FOLDER } from "./folders.ts";
export { bootId, leaveEstate, ownEstateFolders, ownNetns } from "./leave-estate.ts";
export { isBelow, type OwnedSet, type ReadEstates, readEstates, setOf } from "./read-estates.ts";
export { initialValues, templatesOf } from "./templates.ts";
