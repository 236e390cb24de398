import type { Socket } from "node:net";
import { resetSocket } from "#base/socket-reset";
import type { ByteStream, TransportState } from "./index.ts";
import { StreamListeners } from "./listeners.ts";

/** A socket of Node's, TLS or not, as a {@link ByteStream}: paused, half-closable, and from now on this one's alone. */
export class NodeStream extends StreamListeners implements ByteStream {
  readonly #socket: Socket;
  /** Node forgets them when the connection is gone. */
  readonly remoteAddress: string;
  readonly remotePort: number;

  readonly #transport: (() => TransportState | undefined) | undefined;

  /** `transport` asks the kernel of the TCP connection below, which Node does not. */
  constructor(socket: Socket, options: { readonly transport?: () => TransportState | undefined } = {}) {
    super();
    this.#socket = socket;
    this.#transport = options.transport;
    this.remoteAddress = socket.remoteAddress ?? "";
    this.remotePort = socket.remotePort ?? 0;
    socket.pause();
    socket.on("data", (chunk: Buffer) => this.emit("data", chunk));
    socket.once("end", () => this.emit("end"));
    socket.on("drain", () => this.emit("drain"));
    socket.once("finish", () => this.emit("finish"));
    // A close follows.
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
    // Node keeps what the kernel does not take, and TLS reads it later.
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

  limitReads(): void {
    // Node reads as it likes, 64 KiB at the most.
  }

  keepAlive(idleMs: number): void {
    this.#socket.setKeepAlive(true, idleMs);
  }
}
