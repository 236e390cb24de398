import { type ByteStream, StreamListeners, type TransportState } from "#base/byte-stream";
import { KernelError } from "#kernel/errors";
import {
  C,
  decodeSockaddr,
  type Endpoint,
  EPOLL,
  getsockname,
  getsockopt,
  receiveBytes,
  sendBytes,
  setsockopt,
  shutdownWrite,
} from "#kernel/ffi";
import { transportState } from "#kernel/socket";
import { type Emitting, type Reactor, reactorFor, STREAM_BITS, type Ticked, type Watched } from "./reactor.ts";

const EAGAIN = 11;
/** The maximum number of reads in one tick, so that a fast peer does not delay the others. */
const READS_PER_TICK = 4;
const LOST_BITS = EPOLL.error | EPOLL.hangUp | EPOLL.readHangUp;

/** include/uapi/asm-generic/socket.h and include/uapi/linux/tcp.h. */
const SO_ERROR = 4;
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

/** Options of a stream's reads. */
export interface TcpStreamOptions {
  /** The maximum size of one read, in bytes. Default and maximum: 262,144. */
  readonly readBytes?: number | undefined;
}

/** A connected TCP socket. */
export class TcpStream extends StreamListeners implements ByteStream, Watched, Ticked, Emitting {
  readonly fd: number;
  readonly #reactor: Reactor;
  readonly #remote: Endpoint;
  /** A view of the thread's shared buffer. */
  #into: Buffer;
  #local: Endpoint | undefined;
  #isFlowing = false;
  /** True if the last epoll event reported that the socket is readable, and no read since has emptied the kernel's queue. */
  #isReadable = false;
  /** A short read does not mean that the queue is empty: only another read finds an end, an error or bytes after urgent data. */
  #mustReadOn = false;
  #isReadableEnded = false;
  /** Bytes that the kernel has not accepted yet. */
  #queue: Uint8Array[] = [];
  #isEnding = false;
  #isFinished = false;
  #isFinishEmitted = false;
  #isDestroyed = false;
  #isClosed = false;
  #errored: Error | undefined;

  private constructor(fd: number, remote: Endpoint, { readBytes }: TcpStreamOptions) {
    super();
    this.fd = fd;
    this.#reactor = reactorFor(fd);
    this.#remote = remote;
    this.#into = this.#reactor.readBuffer(readBytes);
  }

  /** Adopts a connected descriptor that does not block. Throws {@link KernelError} when it cannot be watched; it is closed then. */
  static adopt(fd: number, remote: Endpoint, options: TcpStreamOptions = {}): TcpStream {
    const stream = new TcpStream(fd, remote, options);
    stream.#reactor.add(stream, STREAM_BITS);
    return stream;
  }

  /** Adopts a descriptor that is watched already with {@link STREAM_BITS}; `bits` are the bits of its last event. */
  static adoptWatched(fd: number, remote: Endpoint, bits: number, options: TcpStreamOptions): TcpStream {
    const stream = new TcpStream(fd, remote, options);
    stream.#reactor.replace(stream);
    stream.onReady(bits);
    return stream;
  }

  get destroyed(): boolean {
    return this.#isDestroyed;
  }

  get closed(): boolean {
    return this.#isClosed;
  }

  get errored(): Error | undefined {
    return this.#errored;
  }

  get readableEnded(): boolean {
    return this.#isReadableEnded;
  }

  get writableFinished(): boolean {
    return this.#isFinished;
  }

  get writableLength(): number {
    return this.#queue.reduce((sum, { length }) => sum + length, 0);
  }

  get writableNeedDrain(): boolean {
    return this.#queue.length > 0;
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

  write(chunk: Uint8Array): boolean {
    if (this.#isDestroyed || this.#isEnding || chunk.length === 0) return this.#queue.length === 0;
    let sent = 0;
    if (this.#queue.length === 0) {
      sent = sendBytes(this.fd, chunk);
      if (sent === chunk.length) return true;
      if (sent < 0 && sent !== -EAGAIN) {
        this.#lose(-sent, "send");
        return false;
      }
    }
    this.#queue.push(Uint8Array.prototype.slice.call(chunk, Math.max(0, sent)));
    return false;
  }

  end(chunk?: Uint8Array): void {
    if (this.#isEnding) return;
    if (chunk !== undefined) this.write(chunk);
    this.#isEnding = true;
    if (this.#queue.length === 0) this.#finish();
  }

  pause(): void {
    this.#isFlowing = false;
  }

  resume(): void {
    if (this.#isFlowing) return;
    this.#isFlowing = true;
    if (this.#isReadable && !this.#isDestroyed) this.#reactor.tickLater(this);
  }

  destroy(): void {
    if (this.#isDestroyed) return;
    this.#isDestroyed = true;
    this.#queue = [];
    this.#reactor.remove(this);
    this.#reactor.emitLater(this);
  }

  reset(): void {
    if (this.#isDestroyed) return;
    setsockopt(this.fd, C.SOL_SOCKET, SO_LINGER, LINGER_ZERO, "reset a connection");
    this.destroy();
  }

  limitReads(bytes: number): void {
    if (bytes !== this.#into.length) this.#into = this.#reactor.readBuffer(bytes, { isCached: false });
  }

  keepAlive(idleMs: number): void {
    if (this.#isDestroyed) return;
    const seconds = Math.min(Math.max(1, Math.round(idleMs / 1000)), MAX_KEEPALIVE_S);
    setsockopt(this.fd, C.SOL_SOCKET, SO_KEEPALIVE, 1);
    setsockopt(this.fd, IPPROTO_TCP, TCP_KEEPIDLE, seconds);
    setsockopt(this.fd, IPPROTO_TCP, TCP_KEEPINTVL, seconds);
    setsockopt(this.fd, IPPROTO_TCP, TCP_KEEPCNT, KEEPALIVE_PROBES);
  }

  transport(): TransportState | undefined {
    return this.#isDestroyed ? undefined : transportState(this.fd);
  }

  abandon(): void {
    this.destroy();
  }

  onReady(bits: number): void {
    if ((bits & (LOST_BITS | EPOLL.priority)) !== 0) this.#mustReadOn = true;
    // These bits stay set after the end and are reported again with each event.
    if ((bits & (EPOLL.in | LOST_BITS)) !== 0) this.#isReadable = !this.#isReadableEnded;
    if (this.#queue.length > 0 && (bits & (EPOLL.out | EPOLL.error)) !== 0) this.#flush();
    if (this.#isReadable && this.#isFlowing) this.onTick();
    if (this.#isReadableEnded && (bits & EPOLL.error) !== 0) this.#loseAfterEnd();
  }

  /** Reads as much as one tick allows. */
  onTick(): void {
    const into = this.#into;
    for (let reads = 0; this.#isFlowing && this.#isReadable && !this.#isDestroyed; reads += 1) {
      if (reads === READS_PER_TICK) {
        this.#reactor.tickLater(this);
        return;
      }
      const length = receiveBytes(this.fd, into);
      if (length <= 0) {
        this.#isReadable = false;
        if (length === 0) this.#endReading();
        else if (length !== -EAGAIN) this.#lose(-length, "receive");
        return;
      }
      // A short read has emptied the queue (epoll(7)), unless an end was reported with it.
      if (length < into.length && !this.#mustReadOn) this.#isReadable = false;
      this.emit("data", into.subarray(0, length));
    }
  }

  /** Emits the latest event only: a destroyed stream emits `close` and no earlier `finish`. */
  onEmit(): void {
    if (this.#isDestroyed) this.#emitClose();
    else this.#emitFinish();
  }

  #flush(): void {
    for (;;) {
      const [first] = this.#queue;
      if (first === undefined) break;
      const sent = sendBytes(this.fd, first);
      if (sent === -EAGAIN) return;
      if (sent < 0) {
        this.#lose(-sent, "send");
        return;
      }
      if (sent < first.length) this.#queue[0] = first.subarray(sent);
      else this.#queue.shift();
    }
    if (this.#isEnding) this.#finish();
    else this.emit("drain");
  }

  #finish(): void {
    if (this.#isDestroyed || this.#isFinished) return;
    // If the peer has ended too, the socket is closed at once, which sends FIN as well.
    const result = this.#isReadableEnded ? 0 : shutdownWrite(this.fd);
    if (result < 0) {
      this.#lose(-result, "end");
      return;
    }
    this.#isFinished = true;
    this.#reactor.emitLater(this);
  }

  #endReading(): void {
    this.#isReadableEnded = true;
    this.emit("end");
    this.#closeIfDone();
  }

  #emitClose(): void {
    if (this.#isClosed) return;
    this.#isClosed = true;
    this.emit("close");
  }

  #emitFinish(): void {
    this.#isFinishEmitted = true;
    this.emit("finish");
    this.#closeIfDone();
  }

  #closeIfDone(): void {
    if (this.#isReadableEnded && this.#isFinishEmitted) this.destroy();
  }

  /** After the end, a read reports the end again and hides a later error: SO_ERROR has it. */
  #loseAfterEnd(): void {
    if (this.#isDestroyed) return;
    const errno = getsockopt(this.fd, C.SOL_SOCKET, SO_ERROR);
    if (errno !== 0) this.#lose(errno, "keep");
  }

  #lose(errno: number, what: string): void {
    this.#errored ??= KernelError.fromErrno(errno, `${what} over a connection`);
    this.destroy();
  }

  /** Read from the kernel on first use, which is rare. */
  #localEndpoint(): Endpoint | undefined {
    if (this.#local === undefined && !this.#isDestroyed) this.#local = decodeSockaddr(getsockname(this.fd));
    return this.#local;
  }
}
