import { ExpectedError } from "#base/errors";
import type { Logger } from "#base/log";
import { openFilesLimit } from "#base/open-files";

/** Files of a program at rest: standard streams, the event loop, modules, listeners, links to peers. */
const AT_REST = 40;
/** The most clients of one listener that have not shown who they are. */
const MOST_NEWCOMERS = 1024;

/** The shares of a limit of open files. */
export interface OpenFiles {
  /** Infinity without a limit. */
  readonly limit: number;
  /** Kept for what must go on: certificates, names, Leases, probes, and what is open at rest. */
  readonly reserve: number;
  /** The most clients of one listener that have not shown who they are. */
  readonly newcomers: number;
  /** The number of connections that the rest is enough for, each with so many files. At least 1. */
  connections(filesOfEach: number): number;
}

/** The shares of a limit; by default of this process, whose soft limit Node has raised to the hard one. */
export function openFiles(limit: number = openFilesLimit()): OpenFiles {
  const reserve = AT_REST + Math.min(128, Math.floor(limit / 8));
  return {
    limit,
    reserve,
    newcomers: Math.max(4, Math.min(MOST_NEWCOMERS, Math.floor(limit / 8))),
    connections: (filesOfEach) => Math.max(1, Math.floor((limit - reserve) / filesOfEach)),
  };
}

/**
 * Writes the first line of a daemon: `limit`, the number of files that it may have open, and `connections`, for how many that is, each with `filesOfEach` of them. `atMost`: it takes
 * no more. Returns the shares.
 */
export function sayOpenFiles(
  log: Logger,
  {
    filesOfEach = 1,
    atMost = Number.POSITIVE_INFINITY,
  }: { readonly filesOfEach?: number; readonly atMost?: number } = {},
  files: OpenFiles = openFiles(),
): OpenFiles {
  const said = (count: number): number | string => (count === Number.POSITIVE_INFINITY ? "unlimited" : count);
  const connections = said(Math.min(files.connections(filesOfEach), atMost));
  log.info("open files", { limit: said(files.limit), connections });
  return files;
}

/** A program may have too few files open to do its work. */
export class OpenFilesError extends ExpectedError<"too-few"> {
  override readonly name = "OpenFilesError";
}

/** Throws {@link OpenFilesError} if fewer files than `needed` may be open. */
export function requireOpenFiles(needed: number, limit: number = openFilesLimit()): void {
  if (limit >= needed) return;
  const text = `needs ${needed} open files at least, and may have ${limit}: raise LimitNOFILE of the unit, or ulimit -n`;
  throw new OpenFilesError("too-few", text);
}
