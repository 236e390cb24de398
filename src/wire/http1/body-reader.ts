import { type HeaderField, parseFieldLine } from "#wire/http-connect";
import { type BodyFraming, type Malformed, malformed } from "./framing.ts";

/** Limit of a line with the size of a chunk and its extensions, in bytes. */
const MAX_SIZE_LINE_BYTES = 4096;
/** Limit of all trailer fields of a message, in bytes. */
const MAX_TRAILER_BYTES = 16_384;
const LF = 10;
const NO_BYTES = new Uint8Array(0);
const NO_FIELDS: readonly HeaderField[] = [];
/**
 * RFC 9112 section 7.1: the size in hexadecimal, and extensions, which are skipped. At most thirteen digits, which a number holds exactly.
 */
const SIZE_LINE = /^([0-9a-fA-F]{1,13})[\t ]*(?:;[\t\x20-\x7e\x80-\xff]*)?$/;

/** The result of one push. The payload is views of the pushed bytes. */
export type BodyProgress =
  | { readonly kind: "more"; readonly payload: readonly Uint8Array[] }
  | {
      readonly kind: "done";
      readonly payload: readonly Uint8Array[];
      /** Bytes after the body: a view, possibly empty. */
      readonly rest: Uint8Array;
      readonly trailers: readonly HeaderField[];
    }
  | Malformed;

/** The part of a chunked body that the next byte belongs to. */
type Place = "size" | "data" | "data-end" | "trailers" | "done";

/**
 * Reads the body of one message in any chunks, and no byte after it. The result does not depend on how the bytes were cut. Holds at most a
 * line; payload is passed on at once.
 */
export class BodyReader {
  readonly #framing: BodyFraming["kind"];
  /** Missing bytes of the body or the chunk. */
  #missing: number;
  #place: Place;
  /** An incomplete line; each character is one byte. */
  #line = "";
  #trailerBytes = 0;
  readonly #trailers: HeaderField[] = [];

  constructor(framing: BodyFraming) {
    this.#framing = framing.kind;
    this.#missing = framing.kind === "length" ? framing.bytes : 0;
    const isOver = framing.kind === "none" || (framing.kind === "length" && framing.bytes === 0);
    this.#place = isOver ? "done" : framing.kind === "chunked" ? "size" : "data";
  }

  /** The body is complete. */
  get isDone(): boolean {
    return this.#place === "done";
  }

  /** Takes the next bytes. After `malformed` it must not be called again. */
  push(chunk: Uint8Array): BodyProgress {
    if (this.isDone) return { kind: "done", payload: [], rest: chunk, trailers: this.#trailers };
    if (this.#framing === "close") return { kind: "more", payload: chunk.length === 0 ? [] : [chunk] };
    return this.#framing === "length" ? this.#pushLength(chunk) : this.#pushChunked(chunk);
  }

  /** The connection has ended. Returns whether the body is complete. */
  end(): boolean {
    if (this.#framing === "close") this.#place = "done";
    return this.isDone;
  }

  #pushLength(chunk: Uint8Array): BodyProgress {
    const taken = Math.min(this.#missing, chunk.length);
    this.#missing -= taken;
    const payload = taken === 0 ? [] : [chunk.subarray(0, taken)];
    if (this.#missing > 0) return { kind: "more", payload };
    this.#place = "done";
    return {
      kind: "done",
      payload,
      rest: taken === chunk.length ? NO_BYTES : chunk.subarray(taken),
      trailers: NO_FIELDS,
    };
  }

  #pushChunked(chunk: Uint8Array): BodyProgress {
    const payload: Uint8Array[] = [];
    let at = 0;
    while (at < chunk.length) {
      if (this.#place === "data") {
        const taken = Math.min(this.#missing, chunk.length - at);
        payload.push(chunk.subarray(at, at + taken));
        this.#missing -= taken;
        at += taken;
        if (this.#missing === 0) this.#place = "data-end";
        continue;
      }
      const end = chunk.indexOf(LF, at);
      const upTo = end < 0 ? chunk.length : end + 1;
      const fault = this.#takeLinePart(Buffer.from(chunk.buffer, chunk.byteOffset + at, upTo - at), end >= 0);
      if (fault !== undefined) return fault;
      at = upTo;
      if (this.isDone) return { kind: "done", payload, rest: chunk.subarray(at), trailers: this.#trailers };
    }
    return { kind: "more", payload };
  }

  #takeLinePart(part: Buffer, isEnd: boolean): Malformed | undefined {
    const max = { size: MAX_SIZE_LINE_BYTES, "data-end": 2, trailers: MAX_TRAILER_BYTES - this.#trailerBytes };
    const place = this.#place as keyof typeof max;
    // Checked by the total length of the line, however it was cut.
    if (this.#line.length + part.length > max[place]) {
      return malformed(
        place === "data-end" ? "a chunk is longer than its size" : "a line of its chunked body is too long",
      );
    }
    this.#line += part.toString("latin1");
    if (!isEnd) return undefined;
    const line = this.#line;
    this.#line = "";
    if (!line.endsWith("\r\n") || line.indexOf("\r") !== line.length - 2) {
      return malformed("a line of its chunked body does not end with CRLF");
    }
    return this.#takeLine(line.slice(0, -2), place);
  }

  #takeLine(line: string, place: "size" | "data-end" | "trailers"): Malformed | undefined {
    if (place === "data-end") {
      if (line !== "") return malformed("a chunk is longer than its size");
      this.#place = "size";
    } else if (place === "size") {
      const size = SIZE_LINE.exec(line)?.[1];
      if (size === undefined) return malformed("the size of a chunk is not a hexadecimal number");
      this.#missing = Number.parseInt(size, 16);
      this.#place = this.#missing === 0 ? "trailers" : "data";
    } else if (line === "") this.#place = "done";
    else {
      this.#trailerBytes += line.length + 2;
      const field = parseFieldLine(line);
      if ("kind" in field) return malformed("a line of its trailer is not a header field");
      this.#trailers.push(field);
    }
    return undefined;
  }
}
