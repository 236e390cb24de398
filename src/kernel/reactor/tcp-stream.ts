import type { TransportState } from "#base/byte-stream";
import { C, decodeSockaddr, type Endpoint, EPOLL, getsockname, setsockopt } from "#kernel/ffi";
import { holdsReceivedBytes, transportState } from "#kernel/socket";
import { STREAM_BITS } from "./reactor.ts";
import { StreamSocket, type StreamSocketOptions } from "./stream-socket.ts";

/** include/uapi/asm-generic/socket.h and include/uapi/linux/tcp.h. */
const SO_KEEPALIVE = 9;
const SO_LINGER = 13;
const IPPROTO_TCP = 6;
const TCP_KEEPIDLE = 4;
const TCP_KEEPINTVL = 5;
const TCP_KEEPCNT = 6;
/** MAX_TCP_KEEPIDLE and MAX_TCP_KEEPINTVL (include/net/tcp.h), in seconds. */
const MAX_KEEPALIVE_S = 32_767;
/** The number of keep-alive probes, as in Go. */
const KEEPALIVE_PROBES = 9;
/** struct linger: on, zero seconds; close(2) then sends RST. */
const LINGER_ZERO = new Uint8Array(new Int32Array([1, 0]).buffer);

/** Options of a stream. */
export interface TcpStreamOptions extends StreamSocketOptions {
  /**
   * True: a connection that is reset while the stream is paused is lost at once, and the unread bytes with it. Default: it is lost when reading
   * comes to it.
   */
  readonly losesWhilePaused?: boolean;
}

/** A connected TCP socket. */
export class TcpStream extends StreamSocket {
  readonly #remote: Endpoint;
  readonly #losesWhilePaused: boolean;
  #local: Endpoint | undefined;

  private constructor(fd: number, remote: Endpoint, options: TcpStreamOptions) {
    super(fd, options, false);
    this.#remote = remote;
    this.#losesWhilePaused = options.losesWhilePaused ?? false;
  }

  /** Adopts a connected descriptor that does not block. Throws {@link KernelError} when it cannot be watched; it is closed then. */
  static adopt(fd: number, remote: Endpoint, options: TcpStreamOptions = {}): TcpStream {
    const stream = new TcpStream(fd, remote, options);
    stream.reactor.add(stream, STREAM_BITS);
    return stream;
  }

  /** Adopts a descriptor that is watched already with {@link STREAM_BITS}; `bits` are the bits of its last event. */
  static adoptWatched(fd: number, remote: Endpoint, bits: number, options: TcpStreamOptions): TcpStream {
    const stream = new TcpStream(fd, remote, options);
    stream.reactor.replace(stream);
    stream.onReady(bits);
    return stream;
  }

  get remoteAddress(): string {
    return this.#remote.address.toString();
  }

  get remotePort(): number {
    return this.#remote.port;
  }

  get localAddress(): string {
    return this.#localEndpoint()?.address.toString() ?? "";
  }

  get localPort(): number {
    return this.#localEndpoint()?.port ?? 0;
  }

  reset(): void {
    if (this.destroyed) return;
    setsockopt(this.fd, C.SOL_SOCKET, SO_LINGER, LINGER_ZERO, "reset a connection");
    this.destroy();
  }

  keepAlive(idleMs: number, intervalMs = idleMs): void {
    if (this.destroyed) return;
    const seconds = (ms: number): number => Math.min(Math.max(1, Math.round(ms / 1000)), MAX_KEEPALIVE_S);
    setsockopt(this.fd, C.SOL_SOCKET, SO_KEEPALIVE, 1);
    setsockopt(this.fd, IPPROTO_TCP, TCP_KEEPIDLE, seconds(idleMs));
    setsockopt(this.fd, IPPROTO_TCP, TCP_KEEPINTVL, seconds(intervalMs));
    setsockopt(this.fd, IPPROTO_TCP, TCP_KEEPCNT, KEEPALIVE_PROBES);
  }

  transport(): TransportState | undefined {
    return this.destroyed ? undefined : transportState(this.fd);
  }

  hasGap(): boolean {
    return !this.destroyed && this.isFlowing && !this.readableEnded && holdsReceivedBytes(this.fd);
  }

  onReady(bits: number): void {
    this.serve(bits);
    // No read reports the error: after the end a read reports the end again, and a paused stream does not read.
    const isUnread = this.readableEnded || (this.#losesWhilePaused && !this.isFlowing);
    if (isUnread && (bits & EPOLL.error) !== 0) this.loseForSocketError();
  }

  /** Read from the kernel on first use, which is rare. */
  #localEndpoint(): Endpoint | undefined {
    if (this.#local === undefined && !this.destroyed) this.#local = decodeSockaddr(getsockname(this.fd));
    return this.#local;
  }
}
