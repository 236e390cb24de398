import type { IncomingMessage, ServerResponse } from "node:http";
import type { Socket } from "node:net";

/**
 * Keeps the connections of one HTTP server, whatever sockets it listens on, at `max`: at the limit the one that has been without a
 * request for longest makes room for the next. Where all have one, the oldest does: answers are given at once, so all it can be
 * doing is not to read its own. So nobody keeps a probe out, by saying nothing or by not listening.
 */
export class ConnectionLimit {
  readonly #max: number;
  readonly #open = new Set<Socket>();
  /** Those without a request, the longest first. */
  readonly #idle = new Set<Socket>();
  readonly #requests = new WeakMap<Socket, number>();

  constructor(max: number) {
    this.#max = max;
  }

  get size(): number {
    return this.#open.size;
  }

  /** A connection has come; at the limit another one is ended for it. */
  admit(socket: Socket): void {
    if (this.#open.size >= this.#max) {
      const [oldest] = this.#idle.size > 0 ? this.#idle : this.#open;
      if (oldest !== undefined) this.#forget(oldest);
      oldest?.destroy();
    }
    this.#open.add(socket);
    this.#idle.add(socket);
    socket.once("close", () => this.#forget(socket));
  }

  /** A request has come; the connection has one until it is answered. */
  busy({ socket }: IncomingMessage, response: ServerResponse): void {
    this.#requests.set(socket, (this.#requests.get(socket) ?? 0) + 1);
    this.#idle.delete(socket);
    response.once("close", () => {
      const left = (this.#requests.get(socket) ?? 1) - 1;
      this.#requests.set(socket, left);
      if (left === 0 && this.#open.has(socket)) this.#idle.add(socket);
    });
  }

  /** Ends all connections. */
  destroyAll(): void {
    for (const socket of this.#open) socket.destroy();
  }

  #forget(socket: Socket): void {
    this.#open.delete(socket);
    this.#idle.delete(socket);
  }
}
