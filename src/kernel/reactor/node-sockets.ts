import { createServer, type Server, Socket } from "node:net";
import { type ByteStream, NodeStream, SocketReads, type TransportState } from "#base/byte-stream";
import { IpAddress } from "#base/ip";
import { KernelError } from "#kernel/errors";
import { duplicate, type Endpoint } from "#kernel/ffi";
import { openTcp, transportState } from "#kernel/socket";
import { type ConnectTcpOptions, socketOptions } from "./connect-tcp.ts";
import type { TcpListenerEvents } from "./tcp-listener.ts";

/** Adopts a connected descriptor as one of Node.js's sockets. */
export function adoptNodeSocket(fd: number): ByteStream {
  const reads = new SocketReads();
  return streamOf(new Socket({ fd, allowHalfOpen: true, onread: reads.onread }), fd, reads);
}

function streamOf(socket: Socket, fd: number, reads: SocketReads): ByteStream {
  // Once the socket is closed, another socket may have its descriptor's number.
  const transport = (): TransportState | undefined => (socket.destroyed ? undefined : transportState(fd));
  return new NodeStream(socket, { transport, reads });
}

/** As `connectTcp`, with one of Node.js's sockets. Rejects with Node.js's error (its `code` is the errno), or with the signal's reason. */
export function connectNodeSocket({ address, port }: Endpoint, options: ConnectTcpOptions = {}): Promise<ByteStream> {
  return new Promise((resolve, reject) => {
    const { signal } = options;
    signal?.throwIfAborted();
    const fd = openTcp(address.family, socketOptions(options));
    const reads = new SocketReads();
    const socket = new Socket({ fd, allowHalfOpen: true, onread: reads.onread });
    const fail = (reason: unknown): void => {
      signal?.removeEventListener("abort", onAbort);
      // The socket may emit an error later, when no caller waits any more.
      socket.on("error", () => undefined);
      socket.destroy();
      reject(reason);
    };
    const onAbort = (): void => fail(signal?.reason);
    signal?.addEventListener("abort", onAbort, { once: true });
    socket.once("error", fail);
    socket.once("connect", () => {
      signal?.removeEventListener("abort", onAbort);
      socket.off("error", fail);
      resolve(streamOf(socket, fd, reads));
    });
    socket.connect({ host: address.toString(), port });
  });
}

/** Accepts clients with Node.js's server, and passes their descriptors to the caller. */
export class NodeTcpListener {
  readonly #server: Server;

  /** Adopts a descriptor that listens. */
  constructor(fd: number, events: TcpListenerEvents) {
    this.#server = createServer({ allowHalfOpen: true, pauseOnConnect: true });
    this.#server.on("connection", (socket) => accept(socket, events));
    this.#server.on("error", (cause) => {
      this.close();
      events.onError(new KernelError("failed", `Cannot accept a client: ${cause.message}`, { cause }));
    });
    this.#server.listen({ fd });
  }

  close(): void {
    this.#server.close();
  }
}

/** Node.js closes the descriptor that it has accepted; the client keeps a duplicate of it. */
function accept(socket: Socket, events: TcpListenerEvents): void {
  const { _handle: handle } = socket as unknown as { readonly _handle: { readonly fd: number } | null };
  const address = IpAddress.tryParse(socket.remoteAddress ?? "");
  if (handle === null || address === undefined) {
    socket.destroy();
    return;
  }
  const remote = { address, port: socket.remotePort ?? 0 };
  try {
    const fd = duplicate(handle.fd);
    socket.destroy();
    events.onClient(fd, remote);
  } catch (error) {
    socket.destroy();
    if (!(error instanceof KernelError)) throw error;
    events.onFault(error);
  }
}
