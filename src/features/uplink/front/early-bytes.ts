import type { Socket } from "node:net";

/** What a client may send before its destination is connected, bytes, and one read more (spec uplink-proxy 7). */
const MAX_BYTES = 65_536;

/** Takes what a client sends while its destination is being dialled, and notices when it leaves. The socket must have a listener for errors. */
export class EarlyBytes {
  readonly #client: Socket;
  readonly #gone = new AbortController();
  readonly #chunks: Uint8Array[] = [];
  #bytes = 0;

  /** `first` came with the request. */
  constructor(client: Socket, first: Uint8Array) {
    this.#client = client;
    if (first.length > 0) this.#push(first);
    client.on("data", this.#onData);
    client.once("end", this.#onEnd);
    client.once("close", this.#onClose);
    if (client.destroyed) this.#onClose();
    else if (this.#bytes < MAX_BYTES) client.resume();
  }

  /** Aborts when nobody waits any more: the connection is lost, or ended before a byte of payload came. */
  get gone(): AbortSignal {
    return this.#gone.signal;
  }

  /** Leaves the client's socket paused and without listeners of ours; what it said so far is the caller's. */
  release(): readonly Uint8Array[] {
    this.#client.pause();
    this.#client.off("data", this.#onData);
    this.#client.off("end", this.#onEnd);
    this.#client.off("close", this.#onClose);
    return this.#chunks;
  }

  #push(chunk: Uint8Array): void {
    this.#chunks.push(chunk);
    this.#bytes += chunk.length;
  }

  readonly #onData = (chunk: Uint8Array): void => {
    this.#push(chunk);
    if (this.#bytes >= MAX_BYTES) this.#client.pause();
  };

  /** Who has said something may have said all of it; who has not can only have given up. */
  readonly #onEnd = (): void => {
    if (this.#bytes === 0) this.#onClose();
  };

  readonly #onClose = (): void => this.#gone.abort(new Error("the client has left"));
}
