import type { Socket } from "node:net";

/**
 * What a client sends before there is somebody to send it to. Reads on while nobody waits for it, so that a client that
 * leaves is noticed, but holds at most `limitBytes` and one read more.
 */
export class EarlyBytes {
  readonly #client: Socket;
  readonly #limitBytes: number;
  readonly #gone = new AbortController();
  #chunks: Buffer[] = [];
  #bytes = 0;
  #ended = false;
  /** Told of each chunk as it comes, and of the client's end as `undefined`. */
  onChunk: ((chunk: Buffer | undefined) => void) | undefined;

  constructor(client: Socket, limitBytes: number) {
    this.#client = client;
    this.#limitBytes = limitBytes;
    client.on("data", this.#onData);
    client.once("end", this.#onEnd);
    client.once("close", this.#onClose);
  }

  /** Aborts when the client's socket is closed before {@link release}. */
  get gone(): AbortSignal {
    return this.#gone.signal;
  }

  /** Stops listening and hands over; the client is paused. `ended` when it has already said that it sends no more. */
  release(): { readonly chunks: readonly Buffer[]; readonly ended: boolean } {
    this.#client.pause();
    this.#client.off("data", this.#onData);
    this.#client.off("end", this.#onEnd);
    this.#client.off("close", this.#onClose);
    const chunks = this.#chunks;
    this.#chunks = [];
    this.onChunk = undefined;
    return { chunks, ended: this.#ended };
  }

  readonly #onData = (chunk: Buffer): void => {
    this.#chunks.push(chunk);
    this.#bytes += chunk.length;
    if (this.#bytes >= this.#limitBytes) this.#client.pause();
    this.onChunk?.(chunk);
  };

  readonly #onEnd = (): void => {
    this.#ended = true;
    this.onChunk?.(undefined);
  };

  readonly #onClose = (): void => this.#gone.abort(new DOMException("the client left", "AbortError"));
}
