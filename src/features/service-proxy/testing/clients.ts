/** What becomes of connections and datagrams, from whatever namespace they are sent. */
import { createSocket, type Socket as UdpSocket } from "node:dgram";
import { once } from "node:events";
import { Socket } from "node:net";
import { IpAddress, type IpFamily } from "#base/ip";
import { resetSocket } from "#base/socket-reset";
import type { NetNs } from "#kernel/net";
import { bindUdp, openTcp } from "#kernel/socket";

/** What came of a connection or of a datagram. */
export type Reached =
  | {
      readonly kind: "delivered";
      /** The machine that answered, in test beds mostly `local` or `remote`. */
      readonly server: string;
      /** Whom it saw. */
      readonly seen: IpAddress;
      /** Its `address port`. */
      readonly by: string;
    }
  | { readonly kind: "dropped" }
  | { readonly kind: "rejected" };

/** Reads a server's line. */
export function readLine(bytes: Buffer): Reached {
  const [first = ""] = bytes.toString("latin1").split("\n");
  const [server = "", seen = "", address = "", port = ""] = first.split(" ");
  return { kind: "delivered", server, seen: IpAddress.parse(seen), by: `${address} ${port}` };
}

/** Connects a socket and waits for the server's line; nothing within `droppedMs` means dropped. Closes the socket, with RST where told to: a port
 * is free again then, for the server and for connection tracking too. */
export async function connectTo(
  socket: Socket,
  destination: IpAddress,
  port: number,
  { droppedMs, reset = false }: { readonly droppedMs: number; readonly reset?: boolean },
): Promise<Reached> {
  const { promise, resolve, reject } = Promise.withResolvers<Reached>();
  // Where this process was held up, what has come meanwhile is read first.
  const late = setTimeout(() => setImmediate(() => setImmediate(() => resolve({ kind: "dropped" }))), droppedMs);
  socket.once("data", (bytes: Buffer) => resolve(readLine(bytes)));
  socket.once("error", (error: NodeJS.ErrnoException) => {
    if (error.code === "ECONNREFUSED" || error.code === "ECONNRESET") resolve({ kind: "rejected" });
    else reject(error);
  });
  socket.connect({ host: destination.toString(), port });
  try {
    return await promise;
  } finally {
    clearTimeout(late);
    if (reset) resetSocket(socket);
    else socket.destroy();
  }
}

/** An unconnected TCP socket of a namespace. */
export function tcpSocket(netns: NetNs, family: IpFamily, source?: IpAddress): Socket {
  return new Socket({ fd: openTcp(family, source === undefined ? { netns } : { netns, source }) });
}

/** A UDP client that keeps its port, and so its flow, towards one destination; whoever opens it closes it. */
export class UdpFlow implements Disposable {
  readonly #socket: UdpSocket;
  #onAnswer: ((reached: Reached) => void) | undefined;
  /** The datagram that came last. */
  lastBytes: Buffer = Buffer.alloc(0);
  /** The client's port. */
  get localPort(): number {
    return this.#socket.address().port;
  }

  /** Codes of all errors since the last question: ECONNREFUSED from ICMP, EPERM where a rule dropped what this machine itself sends. */
  errors: string[] = [];

  private constructor(socket: UdpSocket) {
    this.#socket = socket;
    socket.on("message", (bytes) => {
      this.lastBytes = bytes;
      this.#told(readLine(bytes));
    });
    // A port that nobody has is told by ICMP, to a connected socket.
    socket.on("error", (error) => this.#failed(error));
  }

  /** Towards an address and port; `source` binds the client's address. */
  static async open(netns: NetNs, destination: IpAddress, port: number, source?: IpAddress): Promise<UdpFlow> {
    const { family } = destination;
    const socket = createSocket({ type: family === 4 ? "udp4" : "udp6" });
    const listening = once(socket, "listening");
    socket.bind({ fd: bindUdp(source ?? IpAddress.parse(family === 4 ? "0.0.0.0" : "::"), 0, { netns }) });
    await listening;
    const connected = once(socket, "connect");
    socket.connect(port, destination.toString());
    await connected;
    return new UdpFlow(socket);
  }

  /** Sends a datagram; what comes next within `droppedMs` is its answer. */
  async ask(bytes: Uint8Array | string = "?", { droppedMs = 1000 } = {}): Promise<Reached> {
    const { promise, resolve } = Promise.withResolvers<Reached>();
    this.#onAnswer = resolve;
    this.errors = [];
    const late = setTimeout(() => setImmediate(() => setImmediate(() => resolve({ kind: "dropped" }))), droppedMs);
    this.#socket.send(bytes, (error) => {
      if (error !== null) this.#failed(error);
    });
    try {
      return await promise;
    } finally {
      clearTimeout(late);
      this.#onAnswer = undefined;
    }
  }

  #failed(error: NodeJS.ErrnoException): void {
    this.errors.push(error.code ?? error.message);
    this.#told({ kind: "rejected" });
  }

  #told(reached: Reached): void {
    this.#onAnswer?.(reached);
  }

  [Symbol.dispose](): void {
    this.#socket.close();
  }
}
