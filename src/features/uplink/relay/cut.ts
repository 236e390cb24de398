import type { Socket } from "node:net";
import { resetSocket } from "#base/socket-reset";
import { C, setsockopt } from "#kernel/ffi";
import { descriptorOf } from "./descriptor.ts";

/** include/uapi/asm-generic/socket.h. */
const SO_LINGER = 13;
/** struct linger: on, for no time at all. */
const NO_TIME = new Uint8Array(new Int32Array([1, 0]).buffer);

/**
 * Ends a connection so that its peer cannot take it for an orderly end, whatever still waits to be sent: a close would let the kernel
 * send its queue and then FIN, and half of a file would look whole. A TLS socket is closed; its peer misses the close_notify.
 */
export function cut(socket: Socket): void {
  const fd = descriptorOf(socket);
  if (fd === undefined || socket.destroyed) {
    if (!socket.destroyed) resetSocket(socket);
    return;
  }
  setsockopt(fd, C.SOL_SOCKET, SO_LINGER, NO_TIME, "cut a connection off");
  socket.destroy();
}
