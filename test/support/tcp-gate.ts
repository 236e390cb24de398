/**
 * A port in front of a server, which can be shut: connections are refused, and those that were open are reset, as if the server were
 * killed; the server itself continues.
 *
 * ```ts
 * await using gate = await TcpGate.open({ host: "127.0.0.1", port: server.port });
 * await gate.shut();
 * await gate.reopen();
 * ```
 */
import { once } from "node:events";
import { type AddressInfo, connect, createServer, type Server, type Socket } from "node:net";

/** Disposing shuts it. */
export class TcpGate implements AsyncDisposable {
  readonly #behind: { readonly host: string; readonly port: number };
  readonly #sockets = new Set<Socket>();
  #server: Server | undefined;
  #port = 0;
  /** The number of connections that were accepted until now. */
  connections = 0;

  readonly #listenFd: (() => number) | undefined;

  private constructor(behind: { readonly host: string; readonly port: number }, listenFd?: () => number) {
    this.#behind = behind;
    this.#listenFd = listenFd;
  }

  /** `listenFd` makes the socket that listens, for example in another network namespace. */
  static async open(
    behind: { readonly host: string; readonly port: number },
    listenFd?: () => number,
  ): Promise<TcpGate> {
    const gate = new TcpGate(behind, listenFd);
    await gate.reopen();
    return gate;
  }

  get port(): number {
    return this.#port;
  }

  /** Accepts connections at the same port again. */
  async reopen(): Promise<void> {
    const server = createServer((socket) => this.#pass(socket));
    if (this.#listenFd === undefined) server.listen(this.#port, "127.0.0.1");
    else server.listen({ fd: this.#listenFd() });
    await once(server, "listening");
    this.#port = (server.address() as AddressInfo).port;
    this.#server = server;
  }

  /** Resets open connections and refuses new ones. */
  async shut(): Promise<void> {
    const server = this.#server;
    if (server === undefined) return;
    this.#server = undefined;
    const closed = once(server, "close");
    server.close();
    for (const socket of this.#sockets) socket.resetAndDestroy();
    await closed;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.shut();
  }

  #pass(socket: Socket): void {
    this.connections += 1;
    const behind = connect(this.#behind);
    for (const [one, other] of [
      [socket, behind],
      [behind, socket],
    ] as const) {
      this.#sockets.add(one);
      one.pipe(other);
      // The socket's close event follows.
      one.on("error", () => undefined);
      one.once("close", () => {
        this.#sockets.delete(one);
        other.destroy();
      });
    }
  }
}
