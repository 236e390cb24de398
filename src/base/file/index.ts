/**
 * Files that people and other programs read or write. This module reads them whole up to a maximum size, replaces them in one step, and
 * watches them also when they are renamed or a link is replaced.
 *
 * Owns: {@link readBounded}, {@link replaceFile}, {@link watchFiles}, and the one name of /run ({@link runPath}). Does not know: contents of files.
 *
 * ```ts
 * const text = readBounded("/etc/isthmus/uplinks.yaml");
 * await watchFiles(["/etc/isthmus/uplinks.yaml"], () => reload(), { signal, clock: systemClock });
 * ```
 */
export { FileError } from "./errors.ts";
export { readBounded } from "./read.ts";
export { replaceFile } from "./replace.ts";
export { runPath } from "./run-path.ts";
export { fingerprint, LOOK_MS, lookAt, watchFiles } from "./watch.ts";
