import { join } from "node:path";

/** The folder of the suite in /run: sockets, and a folder for each program. */
export const RUN_FOLDER = "/run/isthmus";
/** The folder of the suite for what a boot leaves. */
export const STATE_FOLDER = "/var/lib/isthmus";

/** The folders that a program of a node has for itself. Pure. */
export function ownFolders(program: string): readonly string[] {
  return [RUN_FOLDER, STATE_FOLDER].map((folder) => join(folder, program));
}
