import { ClientHelloReader } from "#wire/tls-hello";

/**
 * What a client has sent and the destination has not answered yet: the only bytes that may be sent once more, over another uplink,
 * and only when they are a ClientHello or are known to do nothing twice (spec uplink-proxy 6.4). Holds at most `maxBytes`; forgets everything when there is more.
 */
export class Retained {
  readonly #maxBytes: number;
  readonly #isIdempotent: boolean;
  #chunks: Uint8Array[] | undefined = [];
  #bytes = 0;

  /** `isIdempotent`: whatever the client sends may be sent twice, such as a plain GET. */
  constructor(maxBytes: number, options: { readonly isIdempotent?: boolean | undefined } = {}) {
    this.#maxBytes = maxBytes;
    this.#isIdempotent = options.isIdempotent === true;
  }

  /** Still complete. */
  get chunks(): readonly Uint8Array[] | undefined {
    return this.#chunks;
  }

  push(chunk: Uint8Array): void {
    if (this.#chunks === undefined) return;
    this.#bytes += chunk.length;
    if (this.#bytes > this.#maxBytes) this.#chunks = undefined;
    else this.#chunks.push(Uint8Array.prototype.slice.call(chunk));
  }

  /** The destination has answered: nothing may be said twice any more. */
  forget(): void {
    this.#chunks = undefined;
  }

  /** A whole ClientHello without early data, or idempotent anyway: a server that got it twice would do nothing twice. */
  get isReplayable(): boolean {
    if (this.#isIdempotent) return this.#chunks !== undefined;
    const reader = new ClientHelloReader({ maxBytes: this.#maxBytes });
    for (const chunk of this.#chunks ?? []) {
      const progress = reader.push(chunk);
      if (progress.kind === "hello") return progress.hello.hasEarlyData !== true;
      if (progress.kind !== "need-more") return false;
    }
    return false;
  }
}
