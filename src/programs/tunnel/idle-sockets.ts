import type { Server } from "node:http";
import type { Socket } from "node:net";

/**
 * Keeps an HTTP server at `max` connections: at the limit the one that has been without a request for longest makes room for
 * the next. Where all have one, the next is closed.
 */
export function limitSockets(server: Server, max: number): void {
  const open = new Set<Socket>();
  /** Those without a request, the longest first. */
  const idle = new Set<Socket>();
  const requests = new WeakMap<Socket, number>();
  server.on("connection", (socket: Socket) => {
    if (open.size >= max) {
      const [oldest = socket] = idle;
      forget(oldest);
      oldest.destroy();
      if (oldest === socket) return;
    }
    open.add(socket);
    idle.add(socket);
    socket.once("close", () => forget(socket));
  });
  server.on("request", (request, response) => {
    const { socket } = request;
    requests.set(socket, (requests.get(socket) ?? 0) + 1);
    idle.delete(socket);
    response.once("close", () => {
      const left = (requests.get(socket) ?? 1) - 1;
      requests.set(socket, left);
      if (left === 0 && open.has(socket)) idle.add(socket);
    });
  });
  const forget = (socket: Socket): void => {
    open.delete(socket);
    idle.delete(socket);
  };
}
