import { Http2Error } from "./errors.ts";
import { decodeHuffman } from "./huffman.ts";

/** A name, lower-case, and its value. */
export type Header = readonly [name: string, value: string];

/** RFC 7541 Appendix A, from index 1. */
const STATIC_TABLE: readonly Header[] = [
  [":authority", ""],
  [":method", "GET"],
  [":method", "POST"],
  [":path", "/"],
  [":path", "/index.html"],
  [":scheme", "http"],
  [":scheme", "https"],
  [":status", "200"],
  [":status", "204"],
  [":status", "206"],
  [":status", "304"],
  [":status", "400"],
  [":status", "404"],
  [":status", "500"],
  ["accept-charset", ""],
  ["accept-encoding", "gzip, deflate"],
  ["accept-language", ""],
  ["accept-ranges", ""],
  ["accept", ""],
  ["access-control-allow-origin", ""],
  ["age", ""],
  ["allow", ""],
  ["authorization", ""],
  ["cache-control", ""],
  ["content-disposition", ""],
  ["content-encoding", ""],
  ["content-language", ""],
  ["content-length", ""],
  ["content-location", ""],
  ["content-range", ""],
  ["content-type", ""],
  ["cookie", ""],
  ["date", ""],
  ["etag", ""],
  ["expect", ""],
  ["expires", ""],
  ["from", ""],
  ["host", ""],
  ["if-match", ""],
  ["if-modified-since", ""],
  ["if-none-match", ""],
  ["if-range", ""],
  ["if-unmodified-since", ""],
  ["last-modified", ""],
  ["link", ""],
  ["location", ""],
  ["max-forwards", ""],
  ["proxy-authenticate", ""],
  ["proxy-authorization", ""],
  ["range", ""],
  ["referer", ""],
  ["refresh", ""],
  ["retry-after", ""],
  ["server", ""],
  ["set-cookie", ""],
  ["strict-transport-security", ""],
  ["transfer-encoding", ""],
  ["user-agent", ""],
  ["vary", ""],
  ["via", ""],
  ["www-authenticate", ""],
];

const encoder = new TextEncoder();
const decoder = new TextDecoder("utf-8", { ignoreBOM: true });

/**
 * Encodes headers as literals without indexing and Huffman coding: a few bytes more, but no state. `encode` converts text to
 * bytes, by default as UTF-8.
 */
export function encodeHeaderBlock(
  headers: readonly Header[],
  encode: (text: string) => Uint8Array = (text) => encoder.encode(text),
): Uint8Array {
  const bytes: number[] = [];
  for (const [name, value] of headers) {
    bytes.push(0);
    for (const text of [name, value]) {
      const data = encode(text);
      pushInteger(bytes, data.length, 7);
      for (const byte of data) bytes.push(byte);
    }
  }
  return Uint8Array.from(bytes);
}

/**
 * Decodes a header block of a peer to which SETTINGS_HEADER_TABLE_SIZE 0 was sent, so that the dynamic table is always
 * empty. Throws {@link Http2Error}.
 */
export function decodeHeaderBlock(block: Uint8Array): Header[] {
  const reader = new BlockReader(block);
  const headers: Header[] = [];
  while (!reader.done) {
    const first = reader.peek();
    if (first >= 0x80) headers.push(staticEntry(reader.integer(7)));
    else if (first >= 0x40) headers.push(reader.literal(6));
    else if (first >= 0x20)
      reader.integer(5); // a table size update, which can only be 0
    else headers.push(reader.literal(4));
  }
  return headers;
}

/** Reads the pieces of a header block. */
export class BlockReader {
  readonly #block: Uint8Array;
  readonly #entry: (index: number) => Header;
  readonly #text: (bytes: Uint8Array) => string;
  #at = 0;

  /** `entry` returns the header of an index; `text` converts the bytes of a string to text, by default from UTF-8. */
  constructor(
    block: Uint8Array,
    entry: (index: number) => Header = staticEntry,
    text: (bytes: Uint8Array) => string = (bytes) => decoder.decode(bytes),
  ) {
    this.#block = block;
    this.#entry = entry;
    this.#text = text;
  }

  get done(): boolean {
    return this.#at >= this.#block.length;
  }

  peek(): number {
    const byte = this.#block[this.#at];
    if (byte === undefined) throw new Http2Error("malformed", "a header block is cut off");
    return byte;
  }

  /** RFC 7541 section 5.1: an integer with an N-bit prefix. */
  integer(prefixBits: number): number {
    const limit = 2 ** prefixBits - 1;
    let value = this.peek() & limit;
    this.#at += 1;
    if (value < limit) return value;
    for (let shift = 0; shift <= 21; shift += 7) {
      const byte = this.peek();
      this.#at += 1;
      value += (byte & 127) * 2 ** shift;
      if (byte < 128) return value;
    }
    throw new Http2Error("malformed", "a header has an integer above 2^28");
  }

  /** A literal header whose name is indexed with `prefixBits`, or literal if the index is 0. */
  literal(prefixBits: number): Header {
    const index = this.integer(prefixBits);
    const name = index === 0 ? this.#string() : this.#entry(index)[0];
    return [name, this.#string()];
  }

  #string(): string {
    const huffman = this.peek() >= 0x80;
    const length = this.integer(7);
    const end = this.#at + length;
    if (end > this.#block.length) throw new Http2Error("malformed", "a header block is cut off");
    const bytes = this.#block.subarray(this.#at, end);
    this.#at = end;
    return this.#text(huffman ? decodeHuffman(bytes) : bytes);
  }
}

/** The number of entries of the static table. */
export const STATIC_ENTRIES = STATIC_TABLE.length;

/** An entry of the static table. Throws {@link Http2Error}. */
export function staticEntry(index: number): Header {
  const entry = STATIC_TABLE[index - 1];
  if (entry === undefined) throw new Http2Error("malformed", `a header has index ${index}, which is in no table`);
  return entry;
}

function pushInteger(bytes: number[], value: number, prefixBits: number): void {
  const limit = 2 ** prefixBits - 1;
  if (value < limit) {
    bytes.push(value);
    return;
  }
  bytes.push(limit);
  let rest = value - limit;
  while (rest >= 128) {
    bytes.push((rest % 128) + 128);
    rest = Math.floor(rest / 128);
  }
  bytes.push(rest);
}
