import type { AbortLikeOptions } from "#base/async";
import type { IpAddress } from "#base/ip";
import { KernelError } from "#kernel/errors";
import { beginConnect, C, type Endpoint, EPOLL, encodeSockaddr, getsockopt } from "#kernel/ffi";
import { openTcp, type SocketPlace } from "#kernel/socket";
import { type Reactor, reactorFor, STREAM_BITS, type Watched } from "./reactor.ts";
import { TcpStream, type TcpStreamOptions } from "./tcp-stream.ts";

/** include/uapi/asm-generic/errno.h and socket.h. */
const EINPROGRESS = 115;
const SO_ERROR = 4;

/** Options of a connection. */
export interface ConnectTcpOptions extends SocketPlace, AbortLikeOptions, TcpStreamOptions {
  /** Source address. The port is chosen at connect time. */
  readonly source?: IpAddress | undefined;
}

/**
 * Connects. Rejects with {@link KernelError} (its `errno` is the kernel's) or with the signal's reason if the signal aborts first; the
 * descriptor is closed then.
 */
export function connectTcp(to: Endpoint, options: ConnectTcpOptions = {}): Promise<TcpStream> {
  return new Promise((resolve, reject) => {
    options.signal?.throwIfAborted();
    new Dial(openTcp(to.address.family, socketOptions(options)), to, options, { resolve, reject }).start();
  });
}

/** Lists every option; the compiler reports a missing one. */
type AllOptions = { readonly [Name in keyof Required<SocketPlace>]: SocketPlace[Name] };

/** The options of the socket. They are copied one by one, because an object spread for each connection takes as long as a system call. */
export function socketOptions(options: ConnectTcpOptions): AllOptions & { readonly source: IpAddress | undefined } {
  const { netns, mark, device, freebind, transparent, reusePort, v6Only, noDelay = true, source } = options;
  const { receiveBufferBytes, maxSegmentBytes } = options;
  const bindAddressNoPort = source !== undefined;
  return {
    netns,
    mark,
    device,
    freebind,
    transparent,
    reusePort,
    v6Only,
    noDelay,
    source,
    bindAddressNoPort,
    receiveBufferBytes,
    maxSegmentBytes,
  };
}

/** The promise of the caller. */
interface Outcome {
  resolve(stream: TcpStream): void;
  reject(error: unknown): void;
}

/** A descriptor that is being connected. */
class Dial implements Watched {
  readonly fd: number;
  readonly #to: Endpoint;
  readonly #options: ConnectTcpOptions;
  readonly #outcome: Outcome;
  readonly #reactor: Reactor;

  constructor(fd: number, to: Endpoint, options: ConnectTcpOptions, outcome: Outcome) {
    this.fd = fd;
    this.#reactor = reactorFor(fd);
    this.#to = to;
    this.#options = options;
    this.#outcome = outcome;
  }

  /** Throws {@link KernelError} when the descriptor cannot be watched; it is closed then. */
  start(): void {
    const result = beginConnect(this.fd, encodeSockaddr(this.#to));
    this.#reactor.add(this, STREAM_BITS);
    this.#options.signal?.addEventListener("abort", this.#onAbort, { once: true });
    if (result === 0) this.#connected(0);
    else if (result !== -EINPROGRESS) this.#failed(-result);
  }

  abandon(): void {
    const { address, port } = this.#to;
    const text = `Cannot connect to ${address} port ${port}: all streams of this thread were closed during the attempt`;
    this.#stop(new KernelError("failed", text));
  }

  onReady(bits: number): void {
    const errno = (bits & (EPOLL.error | EPOLL.hangUp)) === 0 ? 0 : getsockopt(this.fd, C.SOL_SOCKET, SO_ERROR);
    if (errno !== 0) this.#failed(errno);
    else if ((bits & EPOLL.out) !== 0) this.#connected(bits);
  }

  readonly #onAbort = (): void => this.#stop(this.#options.signal?.reason);

  #connected(bits: number): void {
    this.#options.signal?.removeEventListener("abort", this.#onAbort);
    this.#outcome.resolve(TcpStream.adoptWatched(this.fd, this.#to, bits, this.#options));
  }

  #failed(errno: number): void {
    const { address, port } = this.#to;
    this.#stop(KernelError.fromErrno(errno, `connect to ${address} port ${port}`));
  }

  #stop(reason: unknown): void {
    this.#options.signal?.removeEventListener("abort", this.#onAbort);
    this.#reactor.remove(this);
    this.#outcome.reject(reason);
  }
}
