/**
 * Ending a TCP connection so that its peer sees that it was no orderly end.
 *
 * ```ts
 * resetSocket(socket); // the peer's next read fails with ECONNRESET
 * ```
 */
import type { Socket } from "node:net";

/**
 * Ends a socket at once: with RST where that can be, else by closing it. Node's own `resetAndDestroy` waits until what was
 * written is flushed, for ever where the peer does not read; leaves the descriptor open when the socket's end was already
 * asked for (libuv refuses to reset what is shutting down); and throws for UNIX and TLS sockets.
 */
export function resetSocket(socket: Socket): void {
  if (socket.writableLength > 0 || socket.writableEnded) {
    socket.destroy();
    return;
  }
  try {
    socket.resetAndDestroy();
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== "ERR_INVALID_HANDLE_TYPE") throw error;
    socket.destroy();
  }
}
