import type { StreamOwner } from "#base/byte-stream";
import type { UnixStream } from "#kernel/reactor";
import type { Transport, TransportEvents, TransportPeer } from "./transport.ts";

const PEER: TransportPeer = { address: "unix", serverName: undefined, commonName: undefined };

/** A UNIX stream of kernel/reactor under a session. */
export class UnixTransport implements Transport, StreamOwner {
  readonly #stream: UnixStream;
  /** Called in order when the kernel has taken all bytes. */
  #whenWritten: (() => void)[] = [];
  #events: TransportEvents | undefined;

  /** The stream is paused. */
  constructor(stream: UnixStream) {
    this.#stream = stream;
    stream.setOwner(this);
  }

  start(events: TransportEvents): void {
    this.#events = events;
    this.#stream.resume();
  }

  write(views: readonly Uint8Array[], onWritten: () => void): void {
    if (this.#stream.writeAll(views)) queueMicrotask(onWritten);
    else if (!this.#stream.destroyed) this.#whenWritten.push(onWritten);
  }

  pause(): void {
    if (!this.#stream.hasHungUp) this.#stream.pause();
  }

  resume(): void {
    this.#stream.resume();
  }

  destroy(): void {
    this.#stream.destroy();
  }

  closeSoon(lingerMs: number): void {
    const stream = this.#stream;
    const timer = setTimeout(() => stream.destroy(), lingerMs);
    timer.unref();
    stream.once("close", () => clearTimeout(timer));
    stream.once("finish", () => stream.destroy());
    stream.resume();
    stream.end();
  }

  peer(): TransportPeer {
    return PEER;
  }

  /** The bytes of a read are valid during the event only. */
  onData(chunk: Uint8Array): void {
    this.#events?.onData(Buffer.from(chunk));
  }

  onEnd(): void {
    this.#lost();
  }

  onDrain(): void {
    for (const callback of this.#whenWritten.splice(0)) callback();
  }

  onFinish(): void {
    // A session ends with its stream.
  }

  /** Nothing is written any more. Reading finds the end. */
  onHangUp(): void {
    if (this.#events !== undefined) this.#stream.resume();
  }

  onClose(): void {
    this.#lost();
  }

  #lost(): void {
    this.#events?.onLost(this.#stream.errored?.message ?? "the connection was lost");
  }
}
