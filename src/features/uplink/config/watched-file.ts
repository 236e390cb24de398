import { closeSync, constants, fstatSync, openSync, readSync, statSync } from "node:fs";
import { sleep } from "#base/async";
import type { Clock } from "#base/clock";
import { UplinkConfigError } from "./errors.ts";

/** A longer file is refused, bytes. */
export const MAX_FILE_BYTES = 1 << 20;
/** How often a file is looked at, milliseconds: a stat is some 5 µs, and works through renames and missing folders. */
export const LOOK_MS = 500;

/** Throws {@link UplinkConfigError} `unreadable`. */
export function readBounded(path: string): string {
  try {
    // A pipe that nobody writes to would hold the program up.
    const fd = openSync(path, constants.O_RDONLY | constants.O_NONBLOCK);
    try {
      const stat = fstatSync(fd);
      if (!stat.isFile()) throw new UplinkConfigError("unreadable", `cannot read ${path}: it is no file`);
      const buffer = Buffer.alloc(MAX_FILE_BYTES + 1);
      let length = 0;
      for (let got = -1; got !== 0 && length < buffer.length; length += got) {
        got = readSync(fd, buffer, length, buffer.length - length, null);
      }
      if (length <= MAX_FILE_BYTES) return buffer.toString("utf8", 0, length);
      throw new UplinkConfigError("unreadable", `cannot read ${path}: it has more than ${MAX_FILE_BYTES} bytes`);
    } finally {
      closeSync(fd);
    }
  } catch (error) {
    if (!(error instanceof Error && "syscall" in error)) throw error;
    throw new UplinkConfigError("unreadable", `cannot read ${path}: ${error.message}`, { cause: error });
  }
}

/** What changes when a file is replaced, written or removed. */
export function fingerprint(path: string): string {
  const stat = statSync(path, { bigint: true, throwIfNoEntry: false });
  return stat === undefined ? "absent" : `${stat.dev}:${stat.ino}:${stat.mtimeNs}:${stat.size}`;
}

/** Calls `changed` after each change of one of the files, until the signal aborts. */
export async function watchFiles(
  paths: readonly string[],
  changed: () => void,
  options: { readonly signal: AbortSignal; readonly clock: Clock; readonly since?: string },
): Promise<void> {
  const { signal, clock } = options;
  let seen = options.since ?? lookAt(paths);
  while (!signal.aborted) {
    const now = lookAt(paths);
    if (now !== seen) {
      seen = now;
      changed();
    }
    try {
      await sleep(LOOK_MS, { signal, clock });
    } catch (error) {
      if (!signal.aborted) throw error;
    }
  }
}

/** All fingerprints in one text; a folder that may not be read counts as an absent file. */
export function lookAt(paths: readonly string[]): string {
  return paths
    .map((path) => {
      try {
        return fingerprint(path);
      } catch (error) {
        return error instanceof Error ? error.message : String(error);
      }
    })
    .join(" ");
}
