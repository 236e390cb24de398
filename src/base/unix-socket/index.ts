/**
 * The file of a UNIX stream socket that a server is about to listen on.
 *
 * Owns: the check of the path, and the mode of the socket's file. Does not know: the server.
 *
 * ```ts
 * await claimSocketPath("/run/isthmus/proxy.sock", { deleteExisting: true });
 * await listenOnPath(server, "/run/isthmus/proxy.sock", { umask: 0o007 });
 * ```
 */
import { lstatSync, rmSync } from "node:fs";
import { connect, type Server } from "node:net";
import { ExpectedError } from "#base/errors";

export type SocketPathErrorCode = "in-use" | "not-a-socket" | "exists" | "cannot-listen";

/** A server cannot use the path. Nothing was changed. */
export class SocketPathError extends ExpectedError<SocketPathErrorCode> {
  override readonly name = "SocketPathError";
}

/** The maximum number of clients that wait to be accepted; the kernel's own limit (net.core.somaxconn) is 4096. */
const DEFAULT_BACKLOG = 4096;

/**
 * What connect(2) tells of a path, whether a process listens there. ECONNREFUSED: the socket has no listener. ENOENT: the path is free. EAGAIN: the backlog is full. Other
 * errors are of this process, such as EMFILE, or of a socket of another type.
 */
const SERVED: ReadonlyMap<string, boolean> = new Map([
  ["ECONNREFUSED", false],
  ["ENOENT", false],
  ["EAGAIN", true],
]);

/**
 * Makes sure that the path is free: with `deleteExisting` a socket without a listener is removed.
 * Throws {@link SocketPathError} for any other file there, and where it is not known whether the socket has a listener.
 */
export async function claimSocketPath(path: string, options: { readonly deleteExisting: boolean }): Promise<void> {
  const stat = lstatSync(path, { throwIfNoEntry: false });
  if (stat === undefined) return;
  if (!stat.isSocket()) {
    throw new SocketPathError(
      "not-a-socket",
      `cannot listen on ${path}: the path exists and is not a socket; remove the file, or choose another path`,
    );
  }
  if (await isServed(path)) {
    throw new SocketPathError(
      "in-use",
      `cannot listen on ${path}: another process listens there; stop that process, or choose another path`,
    );
  }
  if (!options.deleteExisting) {
    throw new SocketPathError(
      "exists",
      `cannot listen on ${path}: an earlier process left its socket there; remove that file`,
    );
  }
  rmSync(path, { force: true });
}

/**
 * Listens with the file's mode taken from `umask` (0o007: group and owner). A client that cannot be accepted later, as the system lacks descriptors or memory, is no error:
 * who wants to tell it listens for the server's `error`. Throws {@link SocketPathError}.
 */
export async function listenOnPath(
  server: Server,
  path: string,
  options: { readonly umask: number; readonly backlog?: number },
): Promise<void> {
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
}

/** Whether a process accepts connections at the path. Throws {@link SocketPathError} where that is not known: nobody's socket may be removed then. */
function isServed(path: string): Promise<boolean> {
  const { promise, resolve, reject } = Promise.withResolvers<boolean>();
  const socket = connect(path);
  socket.once("connect", () => {
    socket.destroy();
    resolve(true);
  });
  socket.once("error", (cause: NodeJS.ErrnoException) => {
    const isKnown = SERVED.get(cause.code ?? "");
    if (isKnown !== undefined) {
      resolve(isKnown);
      return;
    }
    const text = `cannot listen on ${path}: it is not known whether another process listens there: ${cause.message}`;
    reject(new SocketPathError("cannot-listen", text, { cause }));
  });
  return promise;
}
