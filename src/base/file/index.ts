/**
 * Files that people and other programs write, or read: read whole within a bound, replaced in one step, and watched through renames and
 * swapped links.
 *
 * Owns: {@link readBounded}, {@link replaceFile}, {@link watchFiles}. Refuses to know: contents of files.
 *
 * ```ts
 * const text = readBounded("/etc/isthmus/uplinks.yaml");
 * await watchFiles(["/etc/isthmus/uplinks.yaml"], () => reload(), { signal, clock: systemClock });
 * ```
 */
export { FileError } from "./errors.ts";
export { readBounded } from "./read.ts";
export { replaceFile } from "./replace.ts";
export { fingerprint, LOOK_MS, lookAt, watchFiles } from "./watch.ts";
