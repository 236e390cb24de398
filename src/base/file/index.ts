/**
 * Files that people and other programs write: read whole within a bound, and followed through renames and swapped links.
 *
 * Owns: {@link readBounded}, {@link watchFiles}. Refuses to know: what is in a file.
 *
 * ```ts
 * const text = readBounded("/etc/isthmus/uplinks.yaml");
 * await watchFiles(["/etc/isthmus/uplinks.yaml"], () => reload(), { signal, clock: systemClock });
 * ```
 */
export { FileError, type FileErrorCode } from "./errors.ts";
export { MAX_FILE_BYTES, readBounded } from "./read.ts";
export { fingerprint, LOOK_MS, lookAt, watchFiles } from "./watch.ts";
