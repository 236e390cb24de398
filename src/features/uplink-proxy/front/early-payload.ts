import { type AbortSignalLike, LightAbortSignal } from "#base/async";
import type { ByteStream } from "#base/byte-stream";
import type { Clock } from "#base/clock";

/** Maximum number of bytes that are read from a client before its destination is connected (docs/spec/uplink-proxy.md#7). */
const MAX_BYTES = 65_536;

/** Created once: an error captures the stack, which is expensive for each client. */
const LEFT = new Error("the client closed the connection");

/** Reads the bytes of a client while its destination is dialled, and notices when it leaves. */
export class EarlyPayload {
  readonly #client: ByteStream;
  readonly #gone = new LightAbortSignal();
  readonly #chunks: Uint8Array[] = [];
  #bytes = 0;
  #onChunk: (() => void) | undefined;

  /** `first`: bytes that came with the request. */
  constructor(client: ByteStream, first: Uint8Array) {
    this.#client = client;
    if (first.length > 0) this.#push(first);
    client.on("data", this.#onData);
    client.on("end", this.#onEnd);
    client.on("close", this.#onClose);
    if (client.destroyed) this.#onClose();
    else this.#goOn();
  }

  /** Aborts when the client has left: its connection is lost, or has ended before any byte of payload came. */
  get gone(): AbortSignalLike {
    return this.#gone;
  }

  /** The bytes received so far. */
  get chunks(): readonly Uint8Array[] {
    return this.#chunks;
  }

  /** Resolves when a chunk has come, or the client has left, or after `atMostMs`. One waiter at a time. */
  more(atMostMs: number, clock: Clock): Promise<void> {
    return new Promise((resolve) => {
      const done = (): void => {
        cancel();
        this.#gone.removeEventListener("abort", done);
        this.#onChunk = undefined;
        resolve();
      };
      const cancel = clock.after(atMostMs, done);
      this.#gone.addEventListener("abort", done, { once: true });
      this.#onChunk = done;
      if (this.#gone.aborted) done();
    });
  }

  /** Pauses the client's stream and removes our listeners; returns the bytes received so far. */
  release(): readonly Uint8Array[] {
    this.#client.pause();
    this.#client.off("data", this.#onData);
    this.#client.off("end", this.#onEnd);
    this.#client.off("close", this.#onClose);
    return this.#chunks;
  }

  #goOn(): void {
    const left = MAX_BYTES - this.#bytes;
    if (left <= 0) {
      this.#client.pause();
      return;
    }
    this.#client.limitReads(left);
    this.#client.resume();
  }

  #push(chunk: Uint8Array): void {
    this.#chunks.push(chunk);
    this.#bytes += chunk.length;
    this.#onChunk?.();
  }

  readonly #onData = (chunk: Uint8Array): void => {
    this.#push(Uint8Array.prototype.slice.call(chunk));
    this.#goOn();
  };

  /** A client that has sent bytes may have ended its request; a client that has sent no bytes does not wait any more. */
  readonly #onEnd = (): void => {
    if (this.#bytes === 0) this.#onClose();
  };

  readonly #onClose = (): void => this.#gone.abort(LEFT);
}
