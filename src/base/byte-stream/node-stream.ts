import type { Socket } from "node:net";
import { resetSocket } from "#base/socket-reset";
import type { ByteStream, TransportState } from "./byte-stream.ts";
import { StreamListeners } from "./listeners.ts";

/** The longest read, bytes. */
const READ_BYTES = 65_536;
/** All sockets of this thread read into this, one after the other. */
let shared: Buffer | undefined;

/** The reads of one socket, into a buffer that all share: nothing is held for a socket that is not read. Pass {@link SocketReads.onread} to its constructor. */
export class SocketReads {
  /** Later reads take at most so much, 1 or more. */
  maxBytes = READ_BYTES;
  onChunk: (chunk: Uint8Array) => void = () => undefined;

  /** The option of `net.Socket`. */
  readonly onread = {
    buffer: (): Uint8Array => {
      shared ??= Buffer.allocUnsafeSlow(READ_BYTES);
      return shared.subarray(0, Math.min(this.maxBytes, READ_BYTES));
    },
    callback: (length: number, buffer: Uint8Array): boolean => {
      this.onChunk(buffer.subarray(0, length));
      return true;
    },
  };
}

/** A Node socket, TLS or not, as a {@link ByteStream}. The stream is paused and owns the socket from now on. */
export class NodeStream extends StreamListeners implements ByteStream {
  readonly #socket: Socket;
  /** The addresses are copied, because Node drops them when the connection is closed. */
  readonly remoteAddress: string;
  readonly remotePort: number;

  readonly #transport: (() => TransportState | undefined) | undefined;
  readonly #reads: SocketReads | undefined;

  /**
   * `transport` reads the state of the TCP connection that carries the socket; Node.js does not offer this state. `reads` are those with which the socket was made;
   * without them Node.js allocates 64 KiB for each read, and reads on while the stream is paused.
   */
  constructor(
    socket: Socket,
    options: { readonly transport?: () => TransportState | undefined; readonly reads?: SocketReads } = {},
  ) {
    super();
    this.#socket = socket;
    this.#transport = options.transport;
    this.#reads = options.reads;
    this.remoteAddress = socket.remoteAddress ?? "";
    this.remotePort = socket.remotePort ?? 0;
    socket.pause();
    if (options.reads === undefined) socket.on("data", (chunk: Buffer) => this.emit("data", chunk));
    else options.reads.onChunk = (chunk) => this.emit("data", chunk);
    socket.once("end", () => this.emit("end"));
    socket.on("drain", () => this.emit("drain"));
    socket.once("finish", () => this.emit("finish"));
    // A `close` event follows.
    socket.on("error", () => socket.destroy());
    socket.once("close", () => this.emit("close"));
  }

  get destroyed(): boolean {
    return this.#socket.destroyed;
  }

  get closed(): boolean {
    return this.#socket.closed;
  }

  get errored(): Error | undefined {
    return this.#socket.errored ?? undefined;
  }

  get readableEnded(): boolean {
    return this.#socket.readableEnded;
  }

  get writableFinished(): boolean {
    return this.#socket.writableFinished;
  }

  get writableLength(): number {
    return this.#socket.writableLength;
  }

  get writableNeedDrain(): boolean {
    return this.#socket.writableNeedDrain;
  }

  get localAddress(): string {
    return this.#socket.localAddress ?? "";
  }

  get localPort(): number {
    return this.#socket.localPort ?? 0;
  }

  write(chunk: Uint8Array): boolean {
    // The chunk is copied: Node.js keeps bytes that the kernel does not accept, and TLS reads them later.
    return this.#socket.write(Buffer.from(chunk));
  }

  end(chunk?: Uint8Array): void {
    if (chunk === undefined) this.#socket.end();
    else this.#socket.end(Buffer.from(chunk));
  }

  pause(): void {
    this.#socket.pause();
  }

  resume(): void {
    this.#socket.resume();
  }

  destroy(): void {
    this.#socket.destroy();
  }

  reset(): void {
    resetSocket(this.#socket);
  }

  transport(): TransportState | undefined {
    return this.#transport?.();
  }

  limitReads(bytes: number): void {
    if (this.#reads !== undefined) this.#reads.maxBytes = bytes;
  }

  keepAlive(idleMs: number): void {
    this.#socket.setKeepAlive(true, idleMs);
  }
}
