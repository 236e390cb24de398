import { OvsdbError } from "./errors.ts";

/** The maximum size of one message, in bytes. */
export const MAX_MESSAGE_BYTES = 16 * 1024 * 1024;
/** The maximum nesting of one message; those of OVSDB have fewer than ten levels. */
export const MAX_DEPTH = 64;

const QUOTE = 0x22;
const BACKSLASH = 0x5c;
const BRACE = 0x7b;

/**
 * Cuts a stream of bytes into JSON objects, which follow each other without a separator (RFC 7047 section 4). In UTF-8 the bytes that are
 * looked for occur nowhere else, so chunks may end anywhere.
 */
export class JsonStream {
  readonly #maxBytes: number;
  #chunks: Buffer[] = [];
  #size = 0;
  #depth = 0;
  #inText = false;
  #escaped = false;

  constructor(options: { readonly maxBytes?: number } = {}) {
    this.#maxBytes = options.maxBytes ?? MAX_MESSAGE_BYTES;
  }

  /** The objects that the chunk completes, in order. Throws {@link OvsdbError} `malformed`; the stream is of no use then. */
  push(chunk: Uint8Array): readonly object[] {
    const bytes = Buffer.from(chunk.buffer, chunk.byteOffset, chunk.length);
    const done: object[] = [];
    let from = 0;
    for (let at = 0; at < bytes.length; at += 1) {
      const byte = bytes[at] ?? 0;
      if (this.#depth === 0 && isSpace(byte)) from = at + 1;
      else if (this.#ends(byte)) {
        done.push(parse(this.#take(bytes.subarray(from, at + 1))));
        from = at + 1;
      }
    }
    if (from < bytes.length) this.#keep(bytes.subarray(from));
    return done;
  }

  /** Looks at the next byte. Returns whether a message ends with it. */
  #ends(byte: number): boolean {
    if (this.#inText) {
      if (this.#escaped) this.#escaped = false;
      else if (byte === BACKSLASH) this.#escaped = true;
      else if (byte === QUOTE) this.#inText = false;
      return false;
    }
    if (this.#depth === 0 && byte !== BRACE) throw malformed("a message does not begin with {");
    if (byte === QUOTE) this.#inText = true;
    else if (byte === BRACE || byte === 0x5b) {
      this.#depth += 1;
      if (this.#depth > MAX_DEPTH) throw malformed(`a message has more than ${MAX_DEPTH} levels`);
    } else if (byte === 0x7d || byte === 0x5d) {
      this.#depth -= 1;
      return this.#depth === 0;
    }
    return false;
  }

  #keep(piece: Buffer): void {
    this.#size += piece.length;
    if (this.#size > this.#maxBytes) throw malformed(`a message has more than ${this.#maxBytes} bytes`);
    // The caller may use its buffer again.
    this.#chunks.push(Buffer.from(piece));
  }

  #take(piece: Buffer): string {
    this.#keep(piece);
    const text = Buffer.concat(this.#chunks).toString("utf8");
    this.#chunks = [];
    this.#size = 0;
    return text;
  }
}

function isSpace(byte: number): boolean {
  return byte === 0x20 || (byte >= 0x09 && byte <= 0x0d);
}

function parse(text: string): object {
  try {
    return JSON.parse(text) as object;
  } catch (cause) {
    throw malformed("a message is not JSON", cause);
  }
}

function malformed(why: string, cause?: unknown): OvsdbError {
  return new OvsdbError("malformed", `the database of Open vSwitch: ${why}`, { cause });
}
