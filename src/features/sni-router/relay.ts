import type { Socket } from "node:net";
import type { Clock } from "#base/clock";
import { resetSocket } from "#base/socket-reset";

/** After one side was lost, the time in which the remaining bytes for the other side must be sent, in milliseconds. */
const FLUSH_MS = 30_000;
/** The time that a refused client may take to read its alert, in milliseconds. */
const LINGER_MS = 500;

/** The direction of bytes. */
export type Direction = "to_backend" | "to_client";

/**
 * Passes bytes on in both directions, unchanged, with backpressure. When one side ends its sending, the write side of the other socket is
 * shut down, and the other direction continues. If one side is lost, the other side is reset once all bytes for it were sent. Resolves when
 * both sockets are closed. Both sockets must be paused and made with `allowHalfOpen`.
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

/** Passes on the bytes of one direction. Resolves when `from` is closed. */
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

/** Resets a connection whose other side was lost, after the bytes that wait for it were sent. */
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

/** Sends an alert and closes when the client has closed, or shortly after: closing with unread bytes would lose the alert. */
export function refuse(client: Socket, alert: Uint8Array | undefined, clock: Clock): void {
  if (client.destroyed) return;
  if (alert === undefined) {
    client.destroy();
    return;
  }
  const cancel = clock.after(LINGER_MS, () => client.destroy());
  client.once("close", cancel);
  client.end(alert);
  client.resume();
}
