import type { Socket } from "node:net";
import type { Clock } from "#base/clock";
import { resetSocket } from "#base/socket-reset";

/** What is still to be sent to one side after the other was lost may take so long, milliseconds. */
const FLUSH_MS = 30_000;
/** A refused client may take so long to read why, milliseconds. */
const LINGER_MS = 500;

/** Which way bytes went. */
export type Direction = "to_backend" | "to_client";

/**
 * Passes bytes on both ways, untouched, no faster than either side takes them. The end of one side's sending is passed on
 * as such and the other way goes on; the loss of one side resets the other, once that has what was read for it.
 * Resolves when both sockets are closed. Both are to be paused and half-closable.
 */
export async function relay(
  client: Socket,
  backend: Socket,
  options: { readonly clock: Clock; readonly onBytes: (direction: Direction, bytes: number) => void },
): Promise<void> {
  const { clock, onBytes } = options;
  await Promise.all([
    pump(client, backend, clock, (bytes) => onBytes("to_backend", bytes)),
    pump(backend, client, clock, (bytes) => onBytes("to_client", bytes)),
  ]);
}

/** One way. Resolves when `from` is closed. */
function pump(from: Socket, to: Socket, clock: Clock, onBytes: (bytes: number) => void): Promise<void> {
  return new Promise((resolve) => {
    const onClosed = (): void => {
      const isOrderly = from.readableEnded && from.writableFinished;
      if (!isOrderly) cutAfterFlush(to, clock);
      resolve();
    };
    if (from.destroyed) return onClosed();
    from.on("data", (chunk: Buffer) => {
      onBytes(chunk.length);
      if (!to.write(chunk)) from.pause();
    });
    to.on("drain", () => from.resume());
    from.once("end", () => to.end());
    from.once("close", onClosed);
    if (to.writableNeedDrain) return;
    from.resume();
  });
}

/** Resets a connection whose other side was lost; first what was read for it leaves. */
function cutAfterFlush(socket: Socket, clock: Clock): void {
  if (socket.destroyed) return;
  if (socket.writableLength === 0) {
    resetSocket(socket);
    return;
  }
  const cancel = clock.after(FLUSH_MS, () => socket.destroy());
  socket.once("close", cancel);
  socket.end(() => socket.destroy());
}

/** Sends last words, and closes when the client has closed or shortly after: closing with unread bytes would lose them. */
export function refuse(client: Socket, lastWords: Uint8Array | undefined, clock: Clock): void {
  if (client.destroyed) return;
  if (lastWords === undefined) {
    client.destroy();
    return;
  }
  const cancel = clock.after(LINGER_MS, () => client.destroy());
  client.once("close", cancel);
  client.end(lastWords);
  client.resume();
}
