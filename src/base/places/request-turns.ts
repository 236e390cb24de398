import type { IncomingMessage, ServerResponse } from "node:http";
import type { Socket } from "node:net";

/** Node's server keeps these of a connection besides its documented parts. */
interface Parsed {
  /** Calls `onIncoming` for each head. With its answer 2, as for an upgrade, it reads nothing more of the bytes that it has. */
  readonly parser?: { onIncoming: () => number } | null;
}
const STOP = 2;

/**
 * The turns of the requests of each connection to an HTTP server of Node: one at a time. Node reads all requests that came together at once and makes
 * objects for each, so a client that sends many without waiting would cost as much as many clients. A client in order waits for its answer.
 */
export class RequestTurns {
  readonly #busy = new WeakSet<Socket>();

  /** Begins the turn of a request, which lasts until its answer is out. Returns false if it came before the last one's was: the connection has ended then. */
  take({ socket }: Pick<IncomingMessage, "socket">, response: Pick<ServerResponse, "once">): boolean {
    if (socket.destroyed) return false;
    if (this.#busy.has(socket)) {
      const { parser } = socket as Parsed;
      if (parser !== undefined && parser !== null) parser.onIncoming = () => STOP;
      socket.destroy();
      return false;
    }
    this.#busy.add(socket);
    response.once("close", () => this.#busy.delete(socket));
    return true;
  }
}
