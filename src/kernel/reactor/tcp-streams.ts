import type { ByteStream } from "#base/byte-stream";
import { KernelError } from "#kernel/errors";
import type { Endpoint } from "#kernel/ffi";
import { type ConnectTcpOptions, connectTcp } from "./connect-tcp.ts";
import { adoptNodeSocket, connectNodeSocket, NodeTcpListener } from "./node-sockets.ts";
import { reactor } from "./reactor.ts";
import { TcpListener, type TcpListenerEvents } from "./tcp-listener.ts";
import { TcpStream, type TcpStreamOptions } from "./tcp-stream.ts";

/** `epoll`: the streams of this module. `node`: Node.js's own sockets, which take three times the CPU time but work on any runtime. */
export type TcpStreamsKind = "epoll" | "node";

/** One way to make TCP connections; both ways keep the contract of {@link ByteStream}. */
export interface TcpStreams {
  readonly kind: TcpStreamsKind;
  /** Adopts a connected descriptor that does not block. Throws {@link KernelError}; the descriptor is closed then. */
  adopt(fd: number, remote: Endpoint, options?: TcpStreamOptions): ByteStream;
  /** Rejects with the system's error, or with the signal's reason; the descriptor is closed then. */
  connect(to: Endpoint, options?: ConnectTcpOptions): Promise<ByteStream>;
  /** Adopts a listening descriptor. Throws {@link KernelError}; it is closed then. */
  listen(fd: number, events: TcpListenerEvents): { close(): void };
}

const EPOLL_STREAMS: TcpStreams = {
  kind: "epoll",
  adopt: (fd, remote, options) => TcpStream.adopt(fd, remote, options),
  connect: connectTcp,
  listen: (fd, events) => new TcpListener(fd, events),
};

const NODE_STREAMS: TcpStreams = {
  kind: "node",
  adopt: (fd) => adoptNodeSocket(fd),
  connect: connectNodeSocket,
  listen: (fd, events) => new NodeTcpListener(fd, events),
};

/** The streams of a kind. */
export function tcpStreams(kind: TcpStreamsKind): TcpStreams {
  return kind === "epoll" ? EPOLL_STREAMS : NODE_STREAMS;
}

/** Start-up check: the reason why this runtime does not support streams over epoll; `undefined` if it does (decision 0006). */
export function epollStreamsFault(): KernelError | undefined {
  try {
    reactor();
    return undefined;
  } catch (error) {
    if (!(error instanceof KernelError)) throw error;
    return error;
  }
}
