/**
 * A limit on the number of an HTTP server's connections. Clients without a request can never keep out clients that send requests.
 *
 * Owns: the choice of the connection that is closed at the limit. Does not know: listening, the meaning of requests.
 *
 * ```ts
 * const connections = new ConnectionLimit(64, { whenAllBusy: "refuse-next" });
 * const server = createServer((request, response) => connections.busy(request, response));
 * server.on("connection", (socket) => connections.admit(socket));
 * ```
 */
import type { IncomingMessage, ServerResponse } from "node:http";
import type { Socket } from "node:net";

/** Selects the connection that is closed at the limit if no connection is idle. */
export interface ConnectionLimitOptions {
  /**
   * `refuse-next`: the new connection, for servers whose answers may take long. `end-oldest`: the oldest connection, for servers that
   * answer at once: its client can only be a client that does not read its answer.
   */
  readonly whenAllBusy: "refuse-next" | "end-oldest";
}

/**
 * Keeps the number of connections of one HTTP server, on all sockets that it listens on, at `max` (1 or more) at most. At the limit, a new
 * connection closes the one that has been without a request for the longest time.
 */
export class ConnectionLimit {
  readonly #max: number;
  readonly #whenAllBusy: ConnectionLimitOptions["whenAllBusy"];
  readonly #open = new Set<Socket>();
  /** Connections without a request; first the one that has been idle for the longest time. */
  readonly #idle = new Set<Socket>();
  readonly #requests = new WeakMap<Socket, number>();

  constructor(max: number, { whenAllBusy }: ConnectionLimitOptions) {
    this.#max = max;
    this.#whenAllBusy = whenAllBusy;
  }

  /** The number of open connections. */
  get size(): number {
    return this.#open.size;
  }

  /** Call this for each new connection. At the limit this closes the new connection or another one. */
  admit(socket: Socket): void {
    if (this.#open.size >= this.#max) {
      const ending = this.#endingFor(socket);
      this.#forget(ending);
      ending.destroy();
      if (ending === socket) return;
    }
    this.#open.add(socket);
    this.#idle.add(socket);
    socket.once("close", () => this.#forget(socket));
  }

  /** Call this for each request: its connection counts as busy until the request is answered. */
  busy({ socket }: Pick<IncomingMessage, "socket">, response: ServerResponse): void {
    this.#requests.set(socket, (this.#requests.get(socket) ?? 0) + 1);
    this.#idle.delete(socket);
    response.once("close", () => {
      const left = (this.#requests.get(socket) ?? 1) - 1;
      this.#requests.set(socket, left);
      if (left === 0 && this.#open.has(socket)) this.#idle.add(socket);
    });
  }

  /** Closes all connections. */
  destroyAll(): void {
    for (const socket of this.#open) socket.destroy();
  }

  #endingFor(next: Socket): Socket {
    const [longestIdle] = this.#idle;
    if (longestIdle !== undefined || this.#whenAllBusy === "refuse-next") return longestIdle ?? next;
    const [oldest = next] = this.#open;
    return oldest;
  }

  #forget(socket: Socket): void {
    this.#open.delete(socket);
    this.#idle.delete(socket);
  }
}
