import { KernelError } from "#kernel/errors";
import { beginConnect, close, EPOLL, encodeUnixPath } from "#kernel/ffi";
import { openUnix } from "#kernel/socket";
import { STREAM_BITS } from "./reactor.ts";
import { StreamSocket, type StreamSocketOptions } from "./stream-socket.ts";

/** include/uapi/asm-generic/errno-base.h. */
const EPIPE = 32;

/** One error for all: most clients end in this way, and an error of its own, with its stack, is a twentieth of a connection's cost. */
let hungUpError: KernelError | undefined;
function hungUp(): KernelError {
  hungUpError ??= KernelError.fromErrno(EPIPE, "keep a connection whose peer has closed");
  return hungUpError;
}

/**
 * A connected UNIX stream socket. It tells the peer's close from the end of its sending (docs/spec/tunnel.md#5.6):
 *
 * - The peer has ended its sending: `end` follows the last byte, and the other direction goes on.
 * - The peer has closed: the stream is lost with EPIPE (ECONNRESET if the peer had not read all bytes), but not before the bytes that the
 *   peer had sent, and `end`, were emitted. A stream that ends its own sending at `end` or before closes in order. While bytes are unread,
 *   in particular while the stream is paused, `hangUp` tells of the close. A write after that loses the stream and the unread bytes.
 * - Once both directions have ended, the kernel reports the same for a peer that has closed and for one that has not: `hangUp` is not emitted.
 *
 * The peer has no address: addresses are empty, and ports 0.
 */
export class UnixStream extends StreamSocket {
  #hasHungUp = false;

  /** Adopts a connected descriptor that does not block. Throws {@link KernelError} when it cannot be watched; it is closed then. */
  static adopt(fd: number, options: StreamSocketOptions = {}): UnixStream {
    const stream = new UnixStream(fd, options);
    stream.reactor.add(stream, STREAM_BITS);
    return stream;
  }

  private constructor(fd: number, options: StreamSocketOptions) {
    // A read ends after bytes that were sent with a descriptor, though more bytes follow. The kernel closes such a descriptor.
    super(fd, options, true);
  }

  get remoteAddress(): string {
    return "";
  }

  get remotePort(): number {
    return 0;
  }

  get localAddress(): string {
    return "";
  }

  get localPort(): number {
    return 0;
  }

  /** True once the peer is known to have closed the connection before this stream had ended its sending. */
  get hasHungUp(): boolean {
    return this.#hasHungUp;
  }

  /**
   * Closes the stream at once, as {@link destroy}: UNIX sockets have no RST. The peer gets ECONNRESET if it has sent bytes that this stream
   * has not read. Otherwise it cannot tell this from an orderly close.
   */
  reset(): void {
    this.destroy();
  }

  /** Does nothing: the kernel closes the connection when the peer's process ends, so a silent peer is never a lost one. */
  keepAlive(): void {
    // See above.
  }

  onReady(bits: number): void {
    // After our own end of sending, the peer's end of sending is reported as a hang-up too.
    const isHangUp = !this.#hasHungUp && (bits & EPOLL.hangUp) !== 0 && !this.writableFinished;
    if (isHangUp) this.#hasHungUp = true;
    // Nothing can be sent after a hang-up. The attempt would lose the bytes that are still to be read.
    this.serve(this.#hasHungUp ? bits & ~(EPOLL.out | EPOLL.error) : bits);
    if (!isHangUp || this.destroyed) return;
    if (this.readableEnded) this.#loseHungUp();
    else this.emit("hangUp");
  }

  protected override onReadableEnd(): void {
    if (this.#hasHungUp) this.#loseHungUp();
  }

  #loseHungUp(): void {
    if (this.destroyed || this.writableFinished) return;
    this.loseForSocketError();
    this.loseWith(hungUp());
  }
}

/**
 * Connects to the UNIX socket of a path. It never waits: the kernel connects or fails at once. Throws {@link KernelError}; its `errno` is
 * ENOENT or ECONNREFUSED if no process listens, EAGAIN if the backlog is full.
 */
export function connectUnix(path: string, options: StreamSocketOptions = {}): UnixStream {
  const address = encodeUnixPath(path);
  const fd = openUnix();
  const result = beginConnect(fd, address);
  if (result < 0) {
    close(fd);
    throw KernelError.fromErrno(-result, `connect to ${path}`);
  }
  return UnixStream.adopt(fd, options);
}
