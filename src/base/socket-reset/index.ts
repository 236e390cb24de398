/**
 * Ends a TCP connection in a way that shows the peer that the connection did not end in order.
 *
 * ```ts
 * resetSocket(socket); // the peer's next read fails with ECONNRESET
 * ```
 */
import type { Socket } from "node:net";

/**
 * Ends a socket at once: with RST where that is possible, else by closing it. Node.js's own `resetAndDestroy` has four faults. It waits
 * until a connection is established, which takes minutes if no answer comes. It waits until written data is flushed, without end if the
 * peer does not read. It leaves the descriptor open after `end()`, because libuv does not reset a socket that is shutting down. It throws
 * for UNIX and TLS sockets.
 */
export function resetSocket(socket: Socket): void {
  if (socket.connecting || socket.writableLength > 0 || socket.writableEnded) {
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
