import { mkdirSync, statSync } from "node:fs";
import { dirname } from "node:path";

/**
 * Makes a folder and its parents with these permission bits, less the umask, where they are absent. Throws the system's error, with `code`.
 *
 * `mkdirSync` with `recursive` does not return where a folder cannot be made in a parent that is there (ENOENT of mkdir(2)): in a folder that was
 * deleted, and is still mounted or somebody's working directory.
 */
export function makeFolder(path: string, mode: number): void {
  try {
    mkdirSync(path, { mode });
  } catch (error) {
    const { code } = error as NodeJS.ErrnoException;
    if (code === "EEXIST" && statSync(path).isDirectory()) return;
    const parent = dirname(path);
    if (code !== "ENOENT" || parent === path) throw error;
    makeFolder(parent, mode);
    makeLast(path, mode);
  }
}

/** Its parent is there. Somebody else may have made it meanwhile. */
function makeLast(path: string, mode: number): void {
  try {
    mkdirSync(path, { mode });
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== "EEXIST" || !statSync(path).isDirectory()) throw error;
  }
}
