import { type Header, STATIC_ENTRIES, staticEntry } from "./hpack.ts";

/** RFC 7541 section 4.1: the size of an entry besides its bytes. */
const ENTRY_OVERHEAD = 32;
/** SETTINGS_HEADER_TABLE_SIZE before the peer sends another one, and the most that is used. */
const MAX_TABLE_BYTES = 4096;
/** An entry is at most this part of the table, so that one header does not push out the others. */
const MAX_ENTRY_BYTES = MAX_TABLE_BYTES / 4;
/** RFC 7541 section 7.1.3: values that no table may keep, on no hop. */
const SENSITIVE = new Set(["authorization", "proxy-authorization", "cookie", "set-cookie"]);
/** Fields that have another value each time. */
const FLEETING = new Set(["content-length", "date", "grpc-message", "grpc-timeout"]);

/** A name of the static table: its first index, and the indexes of its values. */
interface StaticName {
  readonly index: number;
  readonly values: readonly { readonly value: string; readonly index: number }[];
}

/** An entry of the dynamic table. */
interface Entry {
  readonly name: string;
  readonly value: string;
  readonly bytes: number;
  /** The number of entries that were put in before. */
  readonly insertion: number;
}

let staticNames: ReadonlyMap<string, StaticName> | undefined;

/**
 * Encodes the header blocks of one connection, in the order in which they are sent. Headers that are in a table are sent as its index, and none are
 * Huffman-coded: repeated ones are a byte each. The dynamic table has one value of each name: values that change would push out those that do not.
 * Values of {@link SENSITIVE} fields are never indexed.
 */
export class HpackEncoder {
  readonly #static: ReadonlyMap<string, StaticName>;
  readonly #dynamic = new Map<string, Entry>();
  /** Oldest first. */
  readonly #entries: Entry[] = [];
  #inserted = 0;
  #tableBytes = 0;
  #limit = MAX_TABLE_BYTES;
  /** The next block must tell the limit, and before it the least one since the last block (RFC 7541 section 4.2). */
  #toTell: { readonly least: number } | undefined;

  constructor() {
    staticNames ??= namesOfStatic();
    this.#static = staticNames;
  }

  /** The peer's SETTINGS_HEADER_TABLE_SIZE. */
  setMaxTableBytes(bytes: number): void {
    const limit = Math.min(bytes, MAX_TABLE_BYTES);
    if (limit === this.#limit && this.#toTell === undefined) return;
    this.#toTell = { least: Math.min(limit, this.#toTell?.least ?? limit) };
    this.#limit = limit;
    this.#evict(this.#limit);
  }

  /** The most bytes that a block of these headers can have. */
  maxBlockBytes(headers: readonly Header[]): number {
    let bytes = 12;
    for (const [name, value] of headers) bytes += name.length + value.length + 16;
    return bytes;
  }

  /** Writes a block from `at` on, and returns its end. Throws `RangeError` (a bug) for a character above U+00FF. */
  encode(headers: readonly Header[], out: Uint8Array, at: number): number {
    let end = this.#tellLimit(out, at);
    const isConnect = headers[0]?.[1] === "CONNECT";
    for (const header of headers) {
      const isFleeting = isConnect && header[0] === ":authority";
      end = this.#header(header, isFleeting, out, end);
    }
    return end;
  }

  #tellLimit(out: Uint8Array, at: number): number {
    const change = this.#toTell;
    if (change === undefined) return at;
    this.#toTell = undefined;
    const end = change.least < this.#limit ? putInteger(out, at, change.least, 5, 0x20) : at;
    return putInteger(out, end, this.#limit, 5, 0x20);
  }

  #header([name, value]: Header, isFleeting: boolean, out: Uint8Array, at: number): number {
    const known = this.#static.get(name);
    if (known !== undefined) {
      for (const one of known.values) if (one.value === value) return putInteger(out, at, one.index, 7, 0x80);
    }
    const entry = this.#dynamic.get(name);
    const index = entry === undefined ? 0 : STATIC_ENTRIES + this.#inserted - entry.insertion;
    if (entry !== undefined && entry.value === value) return putInteger(out, at, index, 7, 0x80);
    const bytes = name.length + value.length + ENTRY_OVERHEAD;
    const isSensitive = SENSITIVE.has(name);
    const isKept =
      entry === undefined &&
      !isSensitive &&
      !isFleeting &&
      !FLEETING.has(name) &&
      bytes <= MAX_ENTRY_BYTES &&
      bytes <= this.#limit;
    const nameIndex = known?.index ?? index;
    let end: number;
    if (isKept) end = putInteger(out, at, nameIndex, 6, 0x40);
    else end = putInteger(out, at, nameIndex, 4, isSensitive ? 0x10 : 0);
    if (nameIndex === 0) end = putText(out, end, name);
    end = putText(out, end, value);
    if (isKept) this.#insert(name, value, bytes);
    return end;
  }

  #insert(name: string, value: string, bytes: number): void {
    this.#evict(this.#limit - bytes);
    const entry = { name, value, bytes, insertion: this.#inserted };
    this.#dynamic.set(name, entry);
    this.#inserted += 1;
    this.#entries.push(entry);
    this.#tableBytes += bytes;
  }

  #evict(limit: number): void {
    while (this.#tableBytes > limit) {
      const oldest = this.#entries.shift();
      if (oldest === undefined) return;
      this.#tableBytes -= oldest.bytes;
      this.#dynamic.delete(oldest.name);
    }
  }
}

function namesOfStatic(): Map<string, StaticName> {
  const names = new Map<string, { index: number; values: { value: string; index: number }[] }>();
  for (let index = 1; index <= STATIC_ENTRIES; index += 1) {
    const [name, value] = staticEntry(index);
    const known = names.get(name) ?? { index, values: [] };
    known.values.push({ value, index });
    names.set(name, known);
  }
  return names;
}

/** RFC 7541 section 5.1. `pattern` is the bits before the prefix. */
function putInteger(out: Uint8Array, at: number, value: number, prefixBits: number, pattern: number): number {
  const limit = (1 << prefixBits) - 1;
  if (value < limit) {
    out[at] = pattern | value;
    return at + 1;
  }
  out[at] = pattern | limit;
  let end = at + 1;
  let rest = value - limit;
  while (rest >= 128) {
    out[end] = (rest & 127) | 128;
    end += 1;
    rest >>>= 7;
  }
  out[end] = rest;
  return end + 1;
}

/** RFC 7541 section 5.2, without Huffman coding: one byte for each character. */
function putText(out: Uint8Array, at: number, text: string): number {
  const start = putInteger(out, at, text.length, 7, 0);
  for (let index = 0; index < text.length; index += 1) {
    const char = text.charCodeAt(index);
    if (char > 0xff) throw new RangeError(`a header has the character U+${char.toString(16).toUpperCase()}`);
    out[start + index] = char;
  }
  return start + text.length;
}
