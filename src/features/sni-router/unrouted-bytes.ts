import type { Socket } from "node:net";

/**
 * The bytes that a client sends before its backend is connected. Reads until then, so that a client that leaves is detected, but holds at
 * most `limitBytes` and one more read.
 */
export class UnroutedBytes {
  readonly #client: Socket;
  readonly #limitBytes: number;
  readonly #gone = new AbortController();
  #chunks: Buffer[] = [];
  #bytes = 0;
  #ended = false;
  /** Called with each chunk as it comes, and with `undefined` at the client's end. */
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

  /** Forgets all bytes but these, the last of those that came: what was before them is not for the backend. */
  keepOnly(rest: Buffer): void {
    this.#chunks = rest.length === 0 ? [] : [rest];
    this.#bytes = rest.length;
  }

  /** Pauses the client, removes the listeners and returns the bytes. `ended`: the client has already ended its sending. */
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

  readonly #onClose = (): void => this.#gone.abort(new DOMException("the client closed the connection", "AbortError"));
}
