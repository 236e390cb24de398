import {
  type HeaderField,
  joinEqualLengths,
  parseBodyFraming,
  parseFieldLine,
  parseRequestLine,
  type RequestHead,
  type RequestLine,
} from "./head.ts";
import { type Refusal, refusal } from "./refusal.ts";

/** Limits of a request head. */
export interface HeadLimits {
  /** The whole head with the empty line that ends it, in bytes. Default 65,536 (docs/spec/tunnel.md#6). */
  readonly maxBytes?: number;
  /** The request line without its end, in bytes. Default: as much as the head. */
  readonly maxRequestLineBytes?: number;
  /** Default 256. */
  readonly maxFields?: number;
}

/** The result after the bytes received so far. */
export type HeadProgress =
  | { readonly kind: "need-more" }
  | {
      readonly kind: "head";
      readonly head: RequestHead;
      /** Bytes after the head: a view of the last chunk, possibly empty. */
      readonly rest: Uint8Array;
    }
  | Refusal;

const DEFAULT_MAX_BYTES = 65_536;
const DEFAULT_MAX_FIELDS = 256;
const MIN_HELD_BYTES = 512;
const NOTHING = Buffer.alloc(0);
const LF = 10;
const CR = 13;

/**
 * Reads the head of one HTTP/1.x request in any chunks, and no byte after it. Strict: it refuses a bare CR or LF, a folded or nameless
 * field, and every head that two readers could understand in different ways. The caller closes a refused connection, so that no request can
 * be hidden in another. The result does not depend on how the bytes were cut. Holds at most `maxBytes`.
 */
export class RequestHeadReader {
  readonly #maxBytes: number;
  readonly #maxLineBytes: number;
  readonly #maxFields: number;
  /** A copy of the head's bytes, if it has not come in one chunk. */
  #held: Buffer = NOTHING;
  #length = 0;
  #lineStart = 0;
  #requestLine: RequestLine | undefined;
  readonly #fields: HeaderField[] = [];
  #isDone = false;

  constructor(limits: HeadLimits = {}) {
    this.#maxBytes = limits.maxBytes ?? DEFAULT_MAX_BYTES;
    this.#maxLineBytes = limits.maxRequestLineBytes ?? this.#maxBytes;
    this.#maxFields = limits.maxFields ?? DEFAULT_MAX_FIELDS;
  }

  /** Takes the next bytes. Throws an `Error` (a bug) after a final result. */
  push(chunk: Uint8Array): HeadProgress {
    if (this.#isDone) throw new Error("RequestHeadReader: push after the verdict");
    const before = this.#length;
    const taken = Math.min(chunk.length, this.#maxBytes - before);
    // Most heads come in one chunk, which needs no copy.
    const head = before === 0 ? bufferOf(chunk, taken) : this.#hold(chunk, taken, before);
    this.#length = before + taken;
    const progress = this.#advance(head, before, chunk);
    this.#isDone = progress.kind !== "need-more";
    if (before === 0 && !this.#isDone) this.#hold(chunk, taken, 0);
    return progress;
  }

  /** Appends the first bytes of the chunk to the held bytes, and returns all of them. */
  #hold(chunk: Uint8Array, taken: number, at: number): Buffer {
    if (at + taken > this.#held.length) {
      const grown = Buffer.allocUnsafe(Math.max(MIN_HELD_BYTES, this.#held.length * 2, at + taken));
      grown.set(this.#held.subarray(0, at));
      this.#held = grown;
    }
    this.#held.set(chunk.subarray(0, taken), at);
    return this.#held.subarray(0, at + taken);
  }

  #advance(held: Buffer, before: number, chunk: Uint8Array): HeadProgress {
    // Refused before the line ends: a client of another protocol may never send a line's end.
    if (before === 0 && held.length > 0 && !TOKEN_BYTES.has(held[0] ?? 0)) return refusal(400, NOT_HTTP);
    let searchFrom = Math.max(before, this.#lineStart);
    for (;;) {
      const end = held.indexOf(LF, searchFrom);
      if (end < 0) break;
      const fault = this.#checkLineEnd(held, end);
      if (fault !== undefined) return fault;
      const line = held.toString("latin1", this.#lineStart, end - 1);
      this.#lineStart = end + 1;
      searchFrom = end + 1;
      if (line === "" && this.#requestLine !== undefined) {
        const used = end + 1 - before;
        return this.#finish(this.#requestLine, used === chunk.length ? NOTHING : chunk.subarray(used));
      }
      const refused = this.#takeLine(line);
      if (refused !== undefined) return refused;
    }
    return this.#tooLarge() ?? { kind: "need-more" };
  }

  #checkLineEnd(held: Buffer, end: number): Refusal | undefined {
    if (this.#requestLine === undefined && end - 1 - this.#lineStart > this.#maxLineBytes) return LINE_TOO_LONG;
    return end > this.#lineStart && held[end - 1] === CR ? undefined : refusal(400, "malformed request: a bare LF");
  }

  #takeLine(line: string): Refusal | undefined {
    // The parsers refuse bare CR and NUL too, but this message names them.
    if (line.includes("\r")) return refusal(400, "malformed request: a bare CR");
    if (line.includes("\0")) return refusal(400, "malformed request: a NUL");
    if (this.#requestLine === undefined) {
      const parsed = parseRequestLine(line);
      if ("kind" in parsed) return parsed;
      this.#requestLine = parsed;
      return undefined;
    }
    if (this.#fields.length >= this.#maxFields) {
      return refusal(431, `the request has more than ${this.#maxFields} header fields`);
    }
    const field = parseFieldLine(line);
    if ("kind" in field) return field;
    this.#fields.push(field);
    return undefined;
  }

  #finish(requestLine: RequestLine, rest: Uint8Array): HeadProgress {
    const fields = joinEqualLengths(this.#fields);
    const framing = parseBodyFraming(fields);
    if ("kind" in framing) return framing;
    return { kind: "head", head: { ...requestLine, ...framing, fields }, rest };
  }

  #tooLarge(): Refusal | undefined {
    // A final CR may belong to the line's end, and is therefore not refused.
    const isLineTooLong = this.#requestLine === undefined && this.#length - this.#lineStart > this.#maxLineBytes + 1;
    if (isLineTooLong) return LINE_TOO_LONG;
    if (this.#length < this.#maxBytes) return undefined;
    return refusal(431, `the head of the request is longer than ${this.#maxBytes} bytes`);
  }
}

/** The first bytes of the chunk as a buffer; the chunk itself if possible, because a view costs as much as reading a short head. */
function bufferOf(chunk: Uint8Array, length: number): Buffer {
  if (Buffer.isBuffer(chunk) && length === chunk.length) return chunk;
  return Buffer.from(chunk.buffer, chunk.byteOffset, length);
}

const LINE_TOO_LONG = refusal(431, "the request line is too long");
const NOT_HTTP = "malformed request: this is not HTTP/1.1";

/** RFC 9110 section 5.6.2: what a method can begin with. */
const TOKEN_BYTES: ReadonlySet<number> = new Set(
  Array.from({ length: 128 }, (_, byte) => byte).filter((byte) =>
    /[!#$%&'*+.^_`|~0-9A-Za-z-]/.test(String.fromCharCode(byte)),
  ),
);
