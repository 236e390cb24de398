import { lstatSync } from "node:fs";

/**
 * Names a file by its inode, which no other file gets as long as a socket is bound to it; `undefined` if there is no file, or if its folder cannot be
 * searched.
 */
export function fileIdentity(path: string): string | undefined {
  try {
    const stat = lstatSync(path, { bigint: true, throwIfNoEntry: false });
    return stat === undefined ? undefined : `${stat.dev}:${stat.ino}`;
  } catch {
    return undefined;
  }
}
