import { statSync } from "node:fs";
import type { Clock } from "#base/clock";
import { repeat } from "#base/reconcile";

/**
 * The time between two checks of a file, in milliseconds: a stat takes about 5 µs, and also works after renames and with missing folders.
 */
export const LOOK_MS = 500;

/** A value that changes when a file is replaced, written or removed; follows links. Throws as `statSync`, but not if the file is absent. */
export function fingerprint(path: string): string {
  const stat = statSync(path, { bigint: true, throwIfNoEntry: false });
  return stat === undefined ? "absent" : `${stat.dev}:${stat.ino}:${stat.mtimeNs}:${stat.size}`;
}

/**
 * Calls `changed` after each change of one of the files, until the signal aborts. A file that was only touched, or
 * written again with the same content, counts as changed. `since`: the result of {@link lookAt} when the files were last read; by default
 * they are checked now. If `changed` throws, this rejects with the same error.
 */
export async function watchFiles(
  paths: readonly string[],
  changed: () => void,
  options: { readonly signal: AbortSignal; readonly clock: Clock; readonly since?: string },
): Promise<void> {
  const { signal, clock } = options;
  let seen = options.since ?? lookAt(paths);
  const look = async (): Promise<void> => {
    const now = lookAt(paths);
    if (now === seen) return;
    seen = now;
    changed();
  };
  await repeat(look, { signal, clock, everyMs: LOOK_MS });
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
