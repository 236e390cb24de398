/**
 * The CNI files of a node, as the environment of `coil-installer` names them, for the programs that install and keep them.
 *
 * Owns: the environment's names, and the event when files are left missing. Does not know: how files are installed.
 *
 * ```ts
 * group.spawn((signal) => keepCniFiles({ env, nodeName, events, health, log, clock }, { signal }));
 * ```
 */
export { installationOf, readConflist } from "./environment.ts";
export { KEPT_FILES_NOTE, keepCniFiles } from "./keep.ts";
