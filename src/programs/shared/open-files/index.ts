/**
 * The use of the limit of open files by daemons.
 *
 * Owns: how many are kept for what must go on, the shares of clients, and the first line of each daemon. Does not know: the listeners.
 *
 * ```ts
 * const files = sayOpenFiles(log, { filesOfEach: 2 });
 * ```
 */
export { type OpenFiles, openFiles, requireOpenFiles, sayOpenFiles } from "./open-files.ts";
