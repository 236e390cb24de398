import { existsSync, lstatSync, readdirSync, rmSync } from "node:fs";
import { dirname, join, normalize } from "node:path";
import { FileError, replaceFile, runPath } from "#base/file";

/** The folder of the marks. */
export const SERVED_SOCKETS = "/run/isthmus/sockets";
/** A daemon in a container has this folder of its node. */
const EVERYWHERE = "/run/";
/** A path that a socket can have (unix(7)), in hexadecimal. */
const MAX_PATH_BYTES = 107;

/** Which daemon serves a socket, such as `coild`. */
export interface Daemon {
  readonly kind: string;
  /** Default: {@link SERVED_SOCKETS}. */
  readonly folder?: string;
}

/**
 * Marks a socket as one that a daemon of this node serves. Marks of sockets in /run whose folders are gone are removed; other folders may be those of the node alone, while this daemon is in
 * a container. The mark stays when the daemon ends: a DEL that
 * comes before its next start is to find it. Throws `FileError` if it cannot be written.
 */
export function markServed(socket: string, { kind, folder = SERVED_SOCKETS }: Daemon): void {
  const mark = markOf(socket, { kind, folder });
  if (mark === undefined) throw new FileError("unwritable", `${socket} is not a path that a socket can have`);
  replaceFile(mark, "", { mode: 0o644, folderMode: 0o755 });
  for (const name of readdirSync(folder)) {
    const path = pathIn(name);
    if (path?.startsWith(EVERYWHERE) === true && !existsSync(dirname(path)))
      rmSync(join(folder, name), { force: true });
  }
}

/** Returns true if a daemon of this kind has served the socket since the node has started. A mark counts only if it is root's. */
export function isServed(socket: string, daemon: Daemon): boolean {
  const mark = markOf(socket, { folder: SERVED_SOCKETS, ...daemon });
  const found = mark === undefined ? undefined : lstatSync(mark, { throwIfNoEntry: false });
  return found?.isFile() === true && found.uid === 0;
}

/** The sockets that are marked for a kind of daemon, in the order of their paths. */
export function servedSockets({ kind, folder = SERVED_SOCKETS }: Daemon): readonly string[] {
  if (!existsSync(folder)) return [];
  const names = readdirSync(folder).filter((name) => name.startsWith(`${kind}-`));
  return names
    .flatMap((name) => pathIn(name) ?? [])
    .filter((socket) => isServed(socket, { kind, folder }))
    .sort();
}

/** One spelling of a path; links are left as they are. Pure. */
export function canonicalSocket(socket: string): string {
  return runPath(normalize(socket));
}

function markOf(socket: string, { kind, folder }: Required<Daemon>): string | undefined {
  const bytes = Buffer.from(canonicalSocket(socket));
  return bytes.length > MAX_PATH_BYTES ? undefined : join(folder, `${kind}-${bytes.toString("hex")}`);
}

/** The path of a mark's name. */
function pathIn(name: string): string | undefined {
  const [, hex] = /^[a-z-]+-((?:[0-9a-f]{2})+)$/.exec(name) ?? [];
  return hex === undefined ? undefined : Buffer.from(hex, "hex").toString();
}
