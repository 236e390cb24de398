/** Clients in any namespace, and the results of their connections and datagrams. */
import { createSocket, type Socket as UdpSocket } from "node:dgram";
import { once } from "node:events";
import { Socket } from "node:net";
import { IpAddress, type IpFamily } from "#base/ip";
import { resetSocket } from "#base/socket-reset";
import type { NetNs } from "#kernel/net";
import { bindUdp, openTcp } from "#kernel/socket";

/** Result of a connection or a datagram. */
export type Reached =
  | {
      readonly kind: "delivered";
      /** The machine that answered, in test beds mostly `local` or `remote`. */
      readonly server: string;
      /** The client's address as the server saw it. */
      readonly seen: IpAddress;
      /** The server's `address port`. */
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

/**
 * Connects a socket and waits for the server's line; no answer within `droppedMs` means dropped. Closes the socket; with `reset` by RST, so
 * that the port is free at once, for the server and for connection tracking too.
 */
export async function connectTo(
  socket: Socket,
  destination: IpAddress,
  port: number,
  { droppedMs, reset = false }: { readonly droppedMs: number; readonly reset?: boolean },
): Promise<Reached> {
  const { promise, resolve, reject } = Promise.withResolvers<Reached>();
  const cancel = afterSilence(droppedMs, () => resolve({ kind: "dropped" }));
  socket.once("data", (bytes: Buffer) => resolve(readLine(bytes)));
  socket.once("error", (error: NodeJS.ErrnoException) => {
    if (error.code === "ECONNREFUSED" || error.code === "ECONNRESET") resolve({ kind: "rejected" });
    else reject(error);
  });
  socket.connect({ host: destination.toString(), port });
  try {
    return await promise;
  } finally {
    cancel();
    if (reset) resetSocket(socket);
    else socket.destroy();
  }
}

/** In so many parts the time is waited for within which an answer must come. */
const PARTS = 10;

/**
 * Calls back when no answer has come for a time. It passes in parts, each of which ends a turn of the event loop: client and servers are in this process, and
 * if that was delayed, an answer that takes several turns still comes first. Returns a function that cancels.
 */
function afterSilence(ms: number, callback: () => void): () => void {
  let left = PARTS;
  let isCancelled = false;
  let timer: NodeJS.Timeout;
  const next = (): void => {
    if (isCancelled) return;
    if (left === 0) {
      callback();
      return;
    }
    left -= 1;
    timer = setTimeout(() => setImmediate(next), ms / PARTS);
  };
  next();
  return () => {
    isCancelled = true;
    clearTimeout(timer);
  };
}

/** An unconnected TCP socket of a namespace. */
export function tcpSocket(netns: NetNs, family: IpFamily, source?: IpAddress): Socket {
  return new Socket({ fd: openTcp(family, source === undefined ? { netns } : { netns, source }) });
}

/** Resolves when the sockets' events that the kernel has now are read. */
async function eventsRead(): Promise<void> {
  for (let phase = 0; phase < 2; phase += 1) await new Promise<void>((resolve) => void setImmediate(resolve));
}

/** A UDP client that keeps its port, and so its flow, towards one destination; the opener closes it. */
export class UdpFlow implements Disposable {
  readonly #socket: UdpSocket;
  #onAnswer: ((reached: Reached) => void) | undefined;
  /** The last received datagram. */
  lastBytes: Buffer = Buffer.alloc(0);
  /** The client's port. */
  get localPort(): number {
    return this.#socket.address().port;
  }

  /** Codes of all errors since the last datagram: ECONNREFUSED from ICMP, EPERM if a rule dropped the machine's own packet. */
  errors: string[] = [];

  private constructor(socket: UdpSocket) {
    this.#socket = socket;
    socket.on("message", (bytes) => {
      this.lastBytes = bytes;
      this.#report(readLine(bytes));
    });
    // A connected socket gets ICMP errors for an unused port.
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

  /** Sends a datagram; the next datagram within `droppedMs` is its answer. */
  async ask(bytes: Uint8Array | string = "?", { droppedMs = 1000 } = {}): Promise<Reached> {
    const { promise, resolve } = Promise.withResolvers<Reached>();
    this.#onAnswer = resolve;
    this.errors = [];
    const cancel = afterSilence(droppedMs, () => resolve({ kind: "dropped" }));
    this.#socket.send(bytes, (error) => {
      if (error !== null) this.#failed(error);
    });
    try {
      const reached = await promise;
      // The kernel reports a rejected datagram of the machine itself twice, to the sender and on the socket: the second is not the next
      // one's.
      if (reached.kind === "rejected") await eventsRead();
      return reached;
    } finally {
      cancel();
      this.#onAnswer = undefined;
    }
  }

  #failed(error: NodeJS.ErrnoException): void {
    this.errors.push(error.code ?? error.message);
    this.#report({ kind: "rejected" });
  }

  #report(reached: Reached): void {
    this.#onAnswer?.(reached);
  }

  [Symbol.dispose](): void {
    this.#socket.close();
  }
}
