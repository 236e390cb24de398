import type { Socket } from "node:net";
import { type AbortOptions, unlessAborted } from "#base/async";
import { InsideError } from "./errors.ts";

/** Waits for an event of a socket. Destroys the socket after a failure, a timeout or an abort. */
export async function waitFor<T>(
  socket: Socket,
  what: string,
  { timeoutMs, signal }: AbortOptions & { readonly timeoutMs: number },
  begin: (done: (value: T) => void, fail: (why: string) => void) => void,
): Promise<T> {
  const { promise, resolve, reject } = Promise.withResolvers<T>();
  const timer = setTimeout(
    () => reject(new InsideError("timeout", `${what}: no data came within ${timeoutMs} ms`)),
    timeoutMs,
  );
  // Later events of the socket have no effect.
  socket.on("error", () => undefined);
  try {
    signal?.throwIfAborted();
    begin(resolve, (why) => reject(new InsideError("failed", `${what}: ${why}`)));
    return await unlessAborted(promise, { signal });
  } catch (error) {
    socket.destroy();
    throw error;
  } finally {
    clearTimeout(timer);
  }
}
