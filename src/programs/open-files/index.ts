/**
 * What the programs that relay connections make of their limit of open files.
 *
 * Owns: how many are kept for what must go on, and the shares of clients. Does not know: the listeners.
 *
 * ```ts
 * const files = openFiles();
 * log.info("open files", { limit: files.limit, connections: files.connections(2) });
 * ```
 */
export { type OpenFiles, openFiles, requireOpenFiles } from "./open-files.ts";
