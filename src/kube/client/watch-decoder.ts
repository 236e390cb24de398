import { describeError } from "#base/errors";
import type { WatchEvent } from "./api.ts";
import { KubeError } from "./errors.ts";
import { errorFromStatus, isRecord } from "./response.ts";

/** The maximum size of an event, in bytes: five times the size of an object that etcd stores. */
export const MAX_EVENT_BYTES = 8 * 1024 * 1024;
const NEWLINE = 0x0a;

/**
 * Splits a watch's body into events: one JSON text on each line. Pure: bytes in, events out.
 *
 * Throws {@link KubeError}: the server's own for an ERROR event, `bad-response` for a line that is not an event or is too long.
 */
export class WatchDecoder<T> {
  readonly #action: string;
  readonly #maxBytes: number;
  #partial: Uint8Array[] = [];
  #partialBytes = 0;

  constructor(action: string, options: { readonly maxEventBytes?: number } = {}) {
    this.#action = action;
    this.#maxBytes = options.maxEventBytes ?? MAX_EVENT_BYTES;
  }

  /** The events that `chunk` completes, each is parsed when the caller reads it. */
  *push(chunk: Uint8Array): Generator<WatchEvent<T>> {
    let start = 0;
    for (let end = chunk.indexOf(NEWLINE); end >= 0; end = chunk.indexOf(NEWLINE, start)) {
      const line = this.#take(chunk.subarray(start, end));
      start = end + 1;
      if (line.trim() !== "") yield this.#parse(line);
    }
    this.#keep(chunk.subarray(start));
  }

  /** Call this at the end of the body. Throws `unreachable` if the body ended within an event. */
  end(): void {
    if (this.#partialBytes === 0) return;
    throw new KubeError(
      "unreachable",
      `Cannot ${this.#action}: the connection of the watch ended in the middle of an event`,
    );
  }

  #keep(part: Uint8Array): void {
    if (part.length === 0) return;
    this.#partialBytes += part.length;
    if (this.#partialBytes > this.#maxBytes) throw this.#tooLong();
    this.#partial.push(part);
  }

  #take(last: Uint8Array): string {
    if (this.#partialBytes + last.length > this.#maxBytes) throw this.#tooLong();
    const bytes = this.#partialBytes === 0 ? last : Buffer.concat([...this.#partial, last]);
    this.#partial = [];
    this.#partialBytes = 0;
    return Buffer.from(bytes.buffer, bytes.byteOffset, bytes.byteLength).toString("utf8");
  }

  #tooLong(): KubeError {
    return new KubeError("bad-response", `Cannot ${this.#action}: an event is longer than ${this.#maxBytes} bytes`);
  }

  #parse(line: string): WatchEvent<T> {
    let event: unknown;
    try {
      event = JSON.parse(line);
    } catch (cause) {
      throw new KubeError("bad-response", `Cannot ${this.#action}: an event is not JSON: ${describeError(cause)}`, {
        cause,
      });
    }
    const type = isRecord(event) ? event["type"] : undefined;
    const object = isRecord(event) ? event["object"] : undefined;
    if (type === "ERROR") throw errorFromStatus(this.#action, object);
    const metadata = isRecord(object) ? object["metadata"] : undefined;
    const version = isRecord(metadata) ? metadata["resourceVersion"] : undefined;
    if (typeof version === "string" && isRecord(metadata)) {
      if (type === "BOOKMARK") return { type, resourceVersion: version };
      if ((type === "ADDED" || type === "MODIFIED" || type === "DELETED") && typeof metadata["name"] === "string") {
        return { type, object: object as T };
      }
    }
    throw new KubeError(
      "bad-response",
      `Cannot ${this.#action}: this line is not a watch event: ${line.slice(0, 100)}`,
    );
  }
}
