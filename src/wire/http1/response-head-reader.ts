import { type HeaderField, joinEqualLengths, parseFieldLine } from "#wire/http-connect";
import { type Malformed, malformed, type ResponseHead } from "./framing.ts";

/** Limit of the head of a response, in bytes. */
const MAX_BYTES = 65_536;
const MAX_FIELDS = 256;
const LF = 10;
const CR = 13;
const NO_BYTES = Buffer.alloc(0);
const MIN_HELD_BYTES = 512;
/** RFC 9112 section 4; without a reason the space after the status is often missing too. */
const STATUS_LINE = /^HTTP\/1\.([01]) ([1-5]\d\d)(?: ([\t\x20-\x7e\x80-\xff]*))?$/;

/** The result after the bytes received so far. */
export type ResponseHeadProgress =
  | { readonly kind: "need-more" }
  | {
      readonly kind: "head";
      readonly head: ResponseHead;
      /** Bytes after the head: a view of the last chunk, possibly empty. */
      readonly rest: Uint8Array;
    }
  | Malformed;

/**
 * Reads the head of one response in any chunks, and no byte after it. As strict as for requests: bare CR or LF, folded fields and lines
 * that are not fields are refused. The result does not depend on how the bytes were cut. Holds at most 64 KiB.
 */
export class ResponseHeadReader {
  /** A copy of the head's bytes, if it has not come in one chunk. It grows by doubling, so that each byte is copied a few times at most. */
  #held: Buffer = NO_BYTES;
  #length = 0;
  /** Bytes of the incomplete line. */
  #lineStart = 0;
  #lines: string[] = [];

  /** No byte has come yet. */
  get isEmpty(): boolean {
    return this.#length === 0;
  }

  /** Takes the next bytes. It must not be called after a final result. */
  push(chunk: Uint8Array): ResponseHeadProgress {
    const before = this.#length;
    const taken = Math.min(chunk.length, MAX_BYTES - before);
    // Most heads come in one chunk, which needs no copy.
    const head =
      before === 0 ? Buffer.from(chunk.buffer, chunk.byteOffset, taken) : this.#hold(chunk.subarray(0, taken), before);
    this.#length = before + taken;
    const progress = this.#advance(head, before, chunk);
    if (before === 0 && progress.kind === "need-more") this.#hold(head, 0);
    return progress;
  }

  /** Appends bytes to the held ones, and returns all of them. */
  #hold(bytes: Uint8Array, at: number): Buffer {
    const length = at + bytes.length;
    if (length > this.#held.length) {
      const grown = Buffer.allocUnsafe(Math.max(MIN_HELD_BYTES, this.#held.length * 2, length));
      grown.set(this.#held.subarray(0, at));
      this.#held = grown;
    }
    this.#held.set(bytes, at);
    return this.#held.subarray(0, length);
  }

  #advance(held: Buffer, before: number, chunk: Uint8Array): ResponseHeadProgress {
    let from = before;
    for (;;) {
      const end = held.indexOf(LF, from);
      if (end < 0) break;
      from = end + 1;
      if (end === this.#lineStart || held[end - 1] !== CR) return malformed("a line of its head ends with a bare LF");
      const line = held.toString("latin1", this.#lineStart, end - 1);
      this.#lineStart = end + 1;
      if (line === "" && this.#lines.length > 0) return parse(this.#lines, chunk.subarray(end + 1 - before));
      if (line.includes("\r")) return malformed("a line of its head has a bare CR");
      this.#lines.push(line);
      if (this.#lines.length > MAX_FIELDS + 1) return malformed(`it has more than ${MAX_FIELDS} header fields`);
    }
    return this.#length < MAX_BYTES ? { kind: "need-more" } : malformed(`its head is longer than ${MAX_BYTES} bytes`);
  }
}

function parse([statusLine = "", ...fieldLines]: readonly string[], rest: Uint8Array): ResponseHeadProgress {
  const match = STATUS_LINE.exec(statusLine);
  if (match === null) return malformed("it does not begin with a status line of HTTP/1.x");
  const fields: HeaderField[] = [];
  for (const line of fieldLines) {
    const field = parseFieldLine(line);
    if ("kind" in field) return malformed("a line of its head is not a header field");
    fields.push(field);
  }
  const version = match[1] === "1" ? "1.1" : "1.0";
  const head = { version, status: Number(match[2]), reason: match[3] ?? "", fields: joinEqualLengths(fields) } as const;
  return { kind: "head", head, rest };
}
