import { readdirSync, readlinkSync } from "node:fs";

const FOLDER = "/proc/self/fd";

/**
 * The socket behind a descriptor of this process, as `socket:[INODE]`: it has the same number in each process that has the socket (proc_pid_fd(5)). Throws an
 * error of Node.js if the descriptor is not open.
 */
export function socketOf(fd: number): string {
  return readlinkSync(`${FOLDER}/${fd}`);
}

/**
 * A descriptor of this process that is the socket; `undefined` if it has none. Node.js documents no way to ask a server for its descriptor. Reads one link for each
 * open descriptor.
 */
export function descriptorOf(socket: string): number | undefined {
  const found = readdirSync(FOLDER).find((name) => linkOf(name) === socket);
  return found === undefined ? undefined : Number(found);
}

/** `undefined` for a descriptor that is closed by now, as that of the folder's own list. */
function linkOf(name: string): string | undefined {
  try {
    return readlinkSync(`${FOLDER}/${name}`);
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== "ENOENT") throw error;
    return undefined;
  }
}
