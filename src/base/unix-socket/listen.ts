import { renameSync } from "node:fs";
import type { Server } from "node:net";
import { SocketPathError } from "./errors.ts";
import { fileIdentity } from "./identity.ts";

/** The maximum number of clients that wait to be accepted; the kernel's own limit (net.core.somaxconn) is 4096. */
const DEFAULT_BACKLOG = 4096;

/** A server that listens on a path. */
export interface ListeningOnPath {
  /**
   * Stops listening and removes the socket's file, unless the path is the file of somebody else by now. Calls `closed` once all connections
   * have ended. Idempotent.
   */
  close(closed?: () => void): void;
}

/**
 * Listens with the file's mode taken from `umask` (0o007: group and owner). A client that cannot be accepted later, as the system lacks descriptors or memory, is no error:
 * who wants to tell it listens for the server's `error`. Throws {@link SocketPathError}.
 */
export async function listenOnPath(
  server: Server,
  path: string,
  options: { readonly umask: number; readonly backlog?: number },
): Promise<ListeningOnPath> {
  const { promise, resolve, reject } = Promise.withResolvers<void>();
  const onError = (error: Error): void => {
    reject(new SocketPathError("cannot-listen", `cannot listen on ${path}: ${error.message}`, { cause: error }));
  };
  server.once("error", onError);
  // The kernel takes the mode from the mask at bind, which happens within listen.
  const mask = process.umask(options.umask);
  try {
    // When the backlog is full, a client fails at once; it does not wait as a TCP client does.
    server.listen({ path, backlog: options.backlog ?? DEFAULT_BACKLOG }, resolve);
  } finally {
    process.umask(mask);
  }
  await promise;
  server.off("error", onError);
  // The client sees that it was not accepted, and the next one may be. Without a listener the error would end the program.
  server.on("error", () => undefined);
  const identity = fileIdentity(path);
  return {
    close(closed) {
      keepingForeign(path, identity, () => server.close(() => closed?.()));
    },
  };
}

/** Node.js removes whatever file the path has when a server closes: a file that is not ours has another name meanwhile. */
function keepingForeign(path: string, identity: string | undefined, close: () => void): void {
  const found = fileIdentity(path);
  if (found === undefined || found === identity) {
    close();
    return;
  }
  const aside = `${path}.${process.pid}.aside`;
  try {
    renameSync(path, aside);
  } catch {
    // Who may not rename a file of this folder may not remove it either.
    close();
    return;
  }
  try {
    close();
  } finally {
    renameSync(aside, path);
  }
}
