import { lstatSync, rmSync, type Stats } from "node:fs";
import { connect } from "node:net";
import { describeError } from "#base/errors";
import { SocketPathError } from "./errors.ts";

/**
 * The errors of connect(2) at a path tell whether a process listens there. ECONNREFUSED: the socket has no listener. ENOENT: the path is free. EAGAIN: the backlog is full. Other
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
  const stat = statOf(path);
  if (stat === undefined) return;
  if (!stat.isSocket()) {
    throw new SocketPathError(
      "not-a-socket",
      `cannot listen on ${path}: the path exists and is not a socket; remove the file, or choose another path`,
    );
  }
  if (await isSocketServed(path)) {
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

/** Resolves to true if a process accepts connections at the path, which may be free. Rejects with {@link SocketPathError} where that is not known: nobody's socket may be removed then. */
export function isSocketServed(path: string): Promise<boolean> {
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

/** Throws {@link SocketPathError} for a path that cannot be looked at, as in a folder without permission. */
function statOf(path: string): Stats | undefined {
  try {
    return lstatSync(path, { throwIfNoEntry: false });
  } catch (cause) {
    throw new SocketPathError("cannot-listen", `cannot listen on ${path}: ${describeError(cause)}`, { cause });
  }
}
