import { lstatSync, readdirSync, type Stats } from "node:fs";
import { join } from "node:path";

/** Bits of a file's mode by which its group or anybody else may change it. */
const OTHERS_WRITE = 0o022;

/**
 * Returns true if nobody else than root and the user of this process can have written it, now or before: what is run as code was theirs. The mode counts too, because
 * a start under umask 0 leaves files of root that anybody may change.
 */
export function isTrusted({ uid, mode }: Pick<Stats, "uid" | "mode">): boolean {
  return (uid === 0 || uid === process.geteuid?.()) && (mode & OTHERS_WRITE) === 0;
}

/** Returns true if a folder and all that is in it {@link isTrusted}. A folder that is not there is not. */
export function isTrustedFolder(folder: string): boolean {
  try {
    if (!isTrustedPath(folder)) return false;
    return readdirSync(folder, { withFileTypes: true }).every((entry) => {
      const path = join(folder, entry.name);
      return entry.isDirectory() ? isTrustedFolder(path) : entry.isFile() && isTrustedPath(path);
    });
  } catch (error) {
    // It is not there, goes just now, or may not be read.
    if (!(error instanceof Error && "syscall" in error)) throw error;
    return false;
  }
}

function isTrustedPath(path: string): boolean {
  return isTrusted(lstatSync(path));
}
