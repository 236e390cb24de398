import { once } from "node:events";
import { createServer, type Server, type Socket } from "node:net";
import type { IpAddress } from "#base/ip";
import { type NetNsRef, openNetNs } from "#kernel/netns";
import { listenTcp } from "#kernel/socket";

/** The port that answers with the client's address and ends. */
export const WHO_PORT = 8000;
/** The port that answers with the client's address and then echoes. */
export const ECHO_PORT = 8001;

/** TCP servers on both ports of addresses in other namespaces. They tell each client which address they see. */
export class WhoServers implements AsyncDisposable {
  readonly #servers: Server[] = [];
  readonly #sockets = new Set<Socket>();

  /** Serves on an address of a namespace until the disposal. Rejects with `KernelError`. */
  async serve(ref: NetNsRef, address: IpAddress): Promise<void> {
    await this.#listen(ref, address, WHO_PORT, (socket) => socket.end(lineOf(socket)));
    await this.#listen(ref, address, ECHO_PORT, (socket) => {
      socket.write(lineOf(socket));
      socket.pipe(socket);
    });
  }

  async #listen(ref: NetNsRef, address: IpAddress, port: number, answer: (socket: Socket) => void): Promise<void> {
    using netns = openNetNs(ref);
    const server = createServer((socket) => {
      this.#sockets.add(socket);
      socket.once("close", () => this.#sockets.delete(socket));
      // A client that is gone needs no answer.
      socket.on("error", () => socket.destroy());
      answer(socket);
    });
    this.#servers.push(server);
    await once(server.listen({ fd: listenTcp(address, port, { netns }) }), "listening");
  }

  async [Symbol.asyncDispose](): Promise<void> {
    const closed = this.#servers.map((server) => once(server, "close"));
    for (const server of this.#servers) server.close();
    for (const socket of this.#sockets) socket.destroy();
    await Promise.all(closed);
  }
}

function lineOf({ remoteAddress = "" }: Socket): string {
  return `${remoteAddress.replace(/^::ffff:(?=\d+\.)/, "")}\n`;
}
