import { Http2Error } from "./errors.ts";
import { BlockReader, type Header, STATIC_ENTRIES, staticEntry } from "./hpack.ts";

/** RFC 7541 section 4.1: the size of an entry besides its bytes. */
const ENTRY_OVERHEAD = 32;

/**
 * Decodes the header blocks of one connection in order, with the dynamic table that they build (RFC 7541 section 2.3.2). Names
 * and values have one character for each byte (latin1), so that no byte is lost.
 */
export class HpackDecoder {
  readonly #maxTableBytes: number;
  readonly #maxListBytes: number;
  /** Newest first. */
  readonly #entries: Header[] = [];
  readonly #entryOf = (index: number): Header => this.#entry(index);
  #tableBytes = 0;
  #limit: number;

  constructor(options: {
    /** The SETTINGS_HEADER_TABLE_SIZE that was sent to the peer; by default 4096. */
    readonly maxTableBytes: number;
    /** Limit of a block's headers, bytes, with 32 for each header. */
    readonly maxListBytes: number;
  }) {
    this.#maxTableBytes = options.maxTableBytes;
    this.#limit = options.maxTableBytes;
    this.#maxListBytes = options.maxListBytes;
  }

  /**
   * Throws {@link Http2Error}. After `malformed` the decoder must not be used. After `too-large` it may be: the whole block was read, so the
   * table is that of the peer, and only the headers were dropped.
   */
  decode(block: Uint8Array): Header[] {
    const reader = new BlockReader(block, this.#entryOf, latin1);
    const headers: Header[] = [];
    let bytes = 0;
    let isFirst = true;
    while (!reader.done) {
      const header = this.#next(reader, isFirst);
      if (header === undefined) continue;
      isFirst = false;
      bytes += sizeOf(header);
      if (bytes <= this.#maxListBytes) headers.push(header);
    }
    if (bytes > this.#maxListBytes) {
      throw new Http2Error("too-large", `the headers of a block have more than ${this.#maxListBytes} bytes`);
    }
    return headers;
  }

  #next(reader: BlockReader, isFirst: boolean): Header | undefined {
    const first = reader.peek();
    if (first >= 0x80) return this.#entry(reader.integer(7));
    if (first >= 0x40) return this.#insert(reader.literal(6));
    if (first < 0x20) return reader.literal(4);
    if (!isFirst) throw new Http2Error("malformed", "a header table's size changes in the middle of a block");
    const limit = reader.integer(5);
    if (limit > this.#maxTableBytes) {
      throw new Http2Error(
        "malformed",
        `a header table of ${limit} bytes is above the limit of ${this.#maxTableBytes}`,
      );
    }
    this.#limit = limit;
    this.#evict();
    return undefined;
  }

  #entry(index: number): Header {
    if (index <= STATIC_ENTRIES) return staticEntry(index);
    const entry = this.#entries[index - STATIC_ENTRIES - 1];
    if (entry === undefined) throw new Http2Error("malformed", `a header has index ${index}, which no table has`);
    return entry;
  }

  #insert(header: Header): Header {
    this.#entries.unshift(header);
    this.#tableBytes += sizeOf(header);
    this.#evict();
    return header;
  }

  #evict(): void {
    while (this.#tableBytes > this.#limit) {
      const oldest = this.#entries.pop();
      if (oldest === undefined) return;
      this.#tableBytes -= sizeOf(oldest);
    }
  }
}

function sizeOf([name, value]: Header): number {
  return name.length + value.length + ENTRY_OVERHEAD;
}

/** Arguments of one call: far below the limit of the stack. */
const MAX_CHARS = 2048;

function latin1(bytes: Uint8Array): string {
  if (bytes.length <= MAX_CHARS) return textOf(bytes);
  let text = "";
  for (let at = 0; at < bytes.length; at += MAX_CHARS) text += textOf(bytes.subarray(at, at + MAX_CHARS));
  return text;
}

/** Spreading the bytes would make an object for each of them. */
function textOf(bytes: Uint8Array): string {
  return Reflect.apply(String.fromCharCode, undefined, bytes);
}
