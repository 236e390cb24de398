import { rmSync } from "node:fs";
import { bind, C, close, encodeUnixPath, listen, socket } from "#kernel/ffi";

/** The kernel's own limit (net.core.somaxconn). When the backlog is full, a client fails at once; it does not wait as a TCP client does. */
const DEFAULT_BACKLOG = 4096;

/** Options of {@link listenUnix}. */
export interface ListenUnixOptions {
  /** The umask that the mode of the socket's file is made with; 0o007 admits the owner and the group. */
  readonly umask: number;
  /** The maximum number of clients that wait to be accepted. Default and maximum: 4096. */
  readonly backlog?: number;
}

/** Makes a UNIX stream socket that does not block. The caller closes the descriptor. Throws {@link KernelError}. */
export function openUnix(): number {
  return socket(C.AF_UNIX, C.SOCK_STREAM | C.SOCK_NONBLOCK, 0);
}

/**
 * Makes a listening UNIX stream socket that does not block. The path must be free (`claimSocketPath` of base/unix-socket). The caller closes
 * the descriptor and removes the file. Only for the main thread, because a worker cannot set the umask. Throws {@link KernelError} `busy`
 * for a path that exists, `not-found` for a folder that does not, `invalid` for a path that no socket can have.
 */
export function listenUnix(path: string, options: ListenUnixOptions): number {
  const address = encodeUnixPath(path);
  const fd = openUnix();
  let isBound = false;
  // The kernel takes the mode from the mask at bind.
  const mask = process.umask(options.umask);
  try {
    bind(fd, address, `listen on ${path}`);
    isBound = true;
    listen(fd, options.backlog ?? DEFAULT_BACKLOG, `listen on ${path}`);
    return fd;
  } catch (error) {
    close(fd);
    if (isBound) rmSync(path, { force: true });
    throw error;
  } finally {
    process.umask(mask);
  }
}
