import { RequestHeadReader } from "#wire/http-connect";
import { ClientHelloReader } from "#wire/tls-hello";

/**
 * The rule for bytes of a client that may be sent twice without an effect on the server. `hello`: a whole ClientHello without early data.
 * `request`: a ClientHello, or whole requests of GET or HEAD. `always`: any bytes; the caller has checked them.
 */
export type ReplayRule = "hello" | "request" | "always";

const SAFE_METHODS: readonly string[] = ["GET", "HEAD"];

/**
 * The bytes of a client before the destination has answered: only these may be sent once more, over another uplink,
 * and only if sending them twice has no effect (docs/spec/uplink-proxy.md#6.4). Holds at most `maxBytes`; if the client sends more, it
 * drops all of them.
 */
export class ReplayBuffer {
  readonly #maxBytes: number;
  readonly #rule: ReplayRule;
  #chunks: Uint8Array[] | undefined = [];
  #bytes = 0;

  constructor(maxBytes: number, rule: ReplayRule) {
    this.#maxBytes = maxBytes;
    this.#rule = rule;
  }

  /** The bytes; `undefined` if they were dropped. */
  get chunks(): readonly Uint8Array[] | undefined {
    return this.#chunks;
  }

  push(chunk: Uint8Array): void {
    if (this.#chunks === undefined) return;
    this.#bytes += chunk.length;
    if (this.#bytes > this.#maxBytes) this.#chunks = undefined;
    else this.#chunks.push(Uint8Array.prototype.slice.call(chunk));
  }

  /** The destination has answered: no bytes may be sent twice any more. */
  forget(): void {
    this.#chunks = undefined;
  }

  /** True if the rule allows to send the bytes twice. */
  get isReplayable(): boolean {
    if (this.#chunks === undefined) return false;
    if (this.#rule === "always") return true;
    return (
      this.#isHello() || (this.#rule === "request" && areSafeRequests(Buffer.concat(this.#chunks), this.#maxBytes))
    );
  }

  #isHello(): boolean {
    const reader = new ClientHelloReader({ maxBytes: this.#maxBytes });
    for (const chunk of this.#chunks ?? []) {
      const progress = reader.push(chunk);
      if (progress.kind === "hello") return progress.hello.hasEarlyData !== true;
      if (progress.kind !== "need-more") return false;
    }
    return false;
  }
}

/** One or more whole requests, and no bytes after them. */
function areSafeRequests(bytes: Uint8Array, maxBytes: number): boolean {
  let left = bytes;
  while (left.length > 0) {
    const progress = new RequestHeadReader({ maxBytes }).push(left);
    if (progress.kind !== "head" || progress.head.hasBody || !SAFE_METHODS.includes(progress.head.method)) return false;
    left = progress.rest;
  }
  return bytes.length > 0;
}
