/**
 * The open files (descriptors) of this process: how many it may have, and what fails when there are none left.
 *
 * Owns: nothing. Does not know: who opens files.
 *
 * ```ts
 * const places = Math.floor(openFilesLimit() / 8);
 * ```
 */
import { readFileSync } from "node:fs";

/** Codes of the system for: no descriptor, no memory for one, no buffer. */
const SHORTAGES: ReadonlySet<string> = new Set(["EMFILE", "ENFILE", "ENOMEM", "ENOBUFS"]);

/**
 * Tells whether an error is one of a process or machine that is out of descriptors or memory, which passes. Work that only tidies up is tried again later then, and
 * is no reason to end a program. A library that cannot be opened has the system's words in its message alone.
 */
export function isShortage(error: unknown): boolean {
  if (!(error instanceof Error)) return false;
  const { code = "" } = error as NodeJS.ErrnoException;
  return (
    SHORTAGES.has(code) ||
    (code === "ERR_DLOPEN_FAILED" && /Too many open files|Cannot allocate memory/.test(error.message))
  );
}

/** The number of files that this process may have open: the soft limit, which Node has raised to the hard one at its start. Infinity without a limit. */
export function openFilesLimit(): number {
  return parseOpenFiles(readFileSync("/proc/self/limits", "utf8"));
}

/** Pure: the soft limit of open files in the text of /proc/self/limits (proc(5)); infinity if there is none. */
export function parseOpenFiles(text: string): number {
  const match = /^Max open files\s+(\d+)/m.exec(text);
  return match === null ? Number.POSITIVE_INFINITY : Number(match[1]);
}
