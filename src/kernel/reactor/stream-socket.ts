import { type ByteStream, StreamListeners } from "#base/byte-stream";
import { KernelError } from "#kernel/errors";
import { C, EPOLL, getsockopt, receiveBytes, sendBytes, shutdownWrite } from "#kernel/ffi";
import { sendQueueBytes } from "#kernel/socket";
import { type Emitting, type Reactor, reactorFor, type Ticked, type Watched } from "./reactor.ts";
import { WaitingBytes } from "./waiting-bytes.ts";

const EAGAIN = 11;
/** The maximum number of reads in one tick, so that a fast peer does not delay the others. */
const READS_PER_TICK = 4;
const LOST_BITS = EPOLL.error | EPOLL.hangUp | EPOLL.readHangUp;

/** include/uapi/asm-generic/socket.h. */
const SO_ERROR = 4;
/**
 * Chunks of fewer bytes are joined by {@link StreamSocket.writeAll}. A larger chunk takes no longer to send alone than to copy. A gathering
 * call by the FFI takes longer than the copy of small chunks, and saves nothing for large ones (decision 0006).
 */
const JOINED_BYTES = 16_384;

/** Options of a stream. */
export interface StreamSocketOptions {
  /** The maximum size of one read, in bytes. Default and maximum: 262,144. */
  readonly readBytes?: number | undefined;
}

/** A connected stream socket of any family. */
export abstract class StreamSocket extends StreamListeners implements ByteStream, Watched, Ticked, Emitting {
  readonly fd: number;
  protected readonly reactor: Reactor;
  /** A view of the thread's shared buffer. */
  #into: Buffer;
  #isFlowing = false;
  /** True if the last epoll event reported that the socket is readable, and no read since has emptied the kernel's queue. */
  #isReadable = false;
  /** A short read does not mean that the queue is empty: only another read finds an end, an error or bytes after urgent data. */
  #mustReadOn: boolean;
  #isReadableEnded = false;
  /** Bytes that the kernel has not accepted yet; absent if there are none. */
  #waiting: WaitingBytes | undefined;
  #isEnding = false;
  #isFinished = false;
  #isFinishEmitted = false;
  #isDestroyed = false;
  #isClosed = false;
  #errored: Error | undefined;
  #bytesRead = 0;
  #bytesWritten = 0;

  /** `hasShortReads`: a read may end early, with more bytes in the kernel's queue, and no event tells of it. */
  protected constructor(fd: number, { readBytes }: StreamSocketOptions, hasShortReads: boolean) {
    super();
    this.fd = fd;
    this.#mustReadOn = hasShortReads;
    this.reactor = reactorFor(fd);
    this.#into = this.reactor.readBuffer(readBytes);
  }

  abstract readonly remoteAddress: string;
  abstract readonly remotePort: number;
  abstract readonly localAddress: string;
  abstract readonly localPort: number;
  abstract reset(): void;
  abstract keepAlive(idleMs: number, intervalMs?: number): void;
  abstract onReady(bits: number): void;

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
    return this.#waiting?.length ?? 0;
  }

  get writableNeedDrain(): boolean {
    return this.#waiting !== undefined;
  }

  /** The total of bytes that were read from the kernel. */
  get bytesRead(): number {
    return this.#bytesRead;
  }

  /** The total of bytes that the kernel has taken. */
  get bytesWritten(): number {
    return this.#bytesWritten;
  }

  protected get isFlowing(): boolean {
    return this.#isFlowing;
  }

  /**
   * Length of the kernel's send queue in bytes, with its overhead: on a UNIX socket the bytes that the peer has not read, on a TCP socket
   * those that its host has not acknowledged. `undefined` once the stream is destroyed.
   */
  sendQueueBytes(): number | undefined {
    return this.#isDestroyed ? undefined : sendQueueBytes(this.fd);
  }

  write(chunk: Uint8Array): boolean {
    return this.#write(chunk, chunk.length);
  }

  /**
   * As a {@link write} of all chunks in order, with fewer system calls: small chunks are joined. Returns false when the kernel did not take
   * all bytes.
   */
  writeAll(chunks: readonly Uint8Array[]): boolean {
    const joined = this.reactor.joinBuffer;
    let length = 0;
    for (const chunk of chunks) {
      const isJoined = chunk.length < JOINED_BYTES;
      if (length > 0 && (!isJoined || length + chunk.length > joined.length)) {
        this.#write(joined, length);
        length = 0;
      }
      if (isJoined) {
        joined.set(chunk, length);
        length += chunk.length;
      } else this.#write(chunk, chunk.length);
    }
    if (length > 0) this.#write(joined, length);
    return this.#waiting === undefined && !this.#isDestroyed;
  }

  #write(chunk: Uint8Array, length: number): boolean {
    if (this.#isDestroyed || this.#isEnding || length === 0) return this.#waiting === undefined;
    let sent = 0;
    if (this.#waiting === undefined) {
      sent = sendBytes(this.fd, chunk, length);
      if (sent > 0) this.#bytesWritten += sent;
      if (sent === length) return true;
      if (sent < 0 && sent !== -EAGAIN) {
        this.lose(-sent, "send");
        return false;
      }
    }
    this.#waiting ??= new WaitingBytes();
    this.#waiting.push(chunk, Math.max(0, sent), length);
    return false;
  }

  end(chunk?: Uint8Array): void {
    if (this.#isEnding) return;
    if (chunk !== undefined) this.write(chunk);
    this.#isEnding = true;
    if (this.#waiting === undefined) this.#finish();
  }

  pause(): void {
    this.#isFlowing = false;
  }

  resume(): void {
    if (this.#isFlowing) return;
    this.#isFlowing = true;
    if (this.#isReadable && !this.#isDestroyed) this.reactor.tickLater(this);
  }

  destroy(): void {
    if (this.#isDestroyed) return;
    this.#isDestroyed = true;
    this.#waiting = undefined;
    this.reactor.remove(this);
    this.reactor.emitLater(this);
  }

  limitReads(bytes: number): void {
    if (bytes !== this.#into.length) this.#into = this.reactor.readBuffer(bytes, { isCached: false });
  }

  abandon(): void {
    this.destroy();
  }

  /** Reads and writes as an event allows. */
  protected serve(bits: number): void {
    if ((bits & (LOST_BITS | EPOLL.priority)) !== 0) this.#mustReadOn = true;
    // These bits stay set after the end and are reported again with each event.
    if ((bits & (EPOLL.in | LOST_BITS)) !== 0) this.#isReadable = !this.#isReadableEnded;
    if (this.#waiting !== undefined && (bits & (EPOLL.out | EPOLL.error)) !== 0) this.#flush();
    if (this.#isReadable && this.#isFlowing) this.onTick();
  }

  /** Called after `end`, if the stream is not destroyed by then. */
  protected onReadableEnd(): void {
    // Most streams have nothing more to do.
  }

  /** Reads as much as one tick allows. */
  onTick(): void {
    const into = this.#into;
    for (let reads = 0; this.#isFlowing && this.#isReadable && !this.#isDestroyed; reads += 1) {
      if (reads === READS_PER_TICK) {
        this.reactor.tickLater(this);
        return;
      }
      const length = receiveBytes(this.fd, into);
      if (length <= 0) {
        this.#isReadable = false;
        if (length === 0) this.#endReading();
        else if (length !== -EAGAIN) this.lose(-length, "receive");
        return;
      }
      // A short read has emptied the queue (epoll(7)), unless an end was reported with it.
      if (length < into.length && !this.#mustReadOn) this.#isReadable = false;
      this.#bytesRead += length;
      this.emit("data", into.subarray(0, length));
    }
  }

  /** Emits the latest event only: a destroyed stream emits `close` and no earlier `finish`. */
  onEmit(): void {
    if (this.#isDestroyed) this.#emitClose();
    else this.#emitFinish();
  }

  #flush(): void {
    for (let next = this.#waiting?.next(); next !== undefined; next = this.#waiting?.next()) {
      const sent = sendBytes(this.fd, next);
      if (sent === -EAGAIN) return;
      if (sent < 0) {
        this.lose(-sent, "send");
        return;
      }
      this.#bytesWritten += sent;
      this.#waiting?.remove(sent);
    }
    this.#waiting = undefined;
    if (this.#isEnding) this.#finish();
    else this.emit("drain");
  }

  #finish(): void {
    if (this.#isDestroyed || this.#isFinished) return;
    // If the peer has ended too, the socket is closed at once, which sends FIN as well.
    const result = this.#isReadableEnded ? 0 : shutdownWrite(this.fd);
    if (result < 0) {
      this.lose(-result, "end");
      return;
    }
    this.#isFinished = true;
    this.reactor.emitLater(this);
  }

  #endReading(): void {
    this.#isReadableEnded = true;
    this.emit("end");
    this.#closeIfDone();
    if (!this.#isDestroyed) this.onReadableEnd();
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

  /** Loses the connection if the socket has an error that no read has reported. */
  protected loseForSocketError(): void {
    if (this.#isDestroyed) return;
    const errno = getsockopt(this.fd, C.SOL_SOCKET, SO_ERROR);
    if (errno !== 0) this.lose(errno, "keep");
  }

  /** Loses the connection, unless it is lost already. */
  protected lose(errno: number, what: string): void {
    if (this.#errored === undefined) this.loseWith(KernelError.fromErrno(errno, `${what} over a connection`));
  }

  /** The same for a given error. */
  protected loseWith(error: Error): void {
    this.#errored ??= error;
    this.destroy();
  }
}
