import { IpParseError } from "./errors.ts";

/** IP version. */
export type IpFamily = 4 | 6;

const BITS = { 4: 32, 6: 128 } as const;
const MAX = { 4: (1n << 32n) - 1n, 6: (1n << 128n) - 1n } as const;

/** One IPv4 or IPv6 address, immutable. An IPv4-mapped IPv6 address stays IPv6. Zones (`%eth0`) are not part of it. */
export class IpAddress {
  readonly family: IpFamily;
  /** The value of the address: for IPv4 a number from 0 to 2^32 - 1, which is ten times faster than a bigint; for IPv6 a bigint. */
  readonly unsigned: number | bigint;
  #text: string | undefined;

  private constructor(family: IpFamily, unsigned: number | bigint) {
    this.family = family;
    this.unsigned = unsigned;
  }

  /** Parses dotted-quad IPv4 (no leading zeros) or RFC 4291 IPv6. Throws {@link IpParseError} `invalid-address`. */
  static parse(text: string): IpAddress {
    const value = text.includes(":") ? parseV6(text) : parseV4(text);
    if (value === undefined) throw new IpParseError("invalid-address", `"${text}" is not an IP address`);
    return new IpAddress(text.includes(":") ? 6 : 4, value);
  }

  /** Parses as {@link IpAddress.parse} does, but returns `undefined` for text that is not an address. */
  static tryParse(text: string): IpAddress | undefined {
    const value = text.includes(":") ? parseV6(text) : parseV4(text);
    return value === undefined ? undefined : new IpAddress(text.includes(":") ? 6 : 4, value);
  }

  /** Makes an address from 4 or 16 bytes in network order. Throws {@link IpParseError} for another length. */
  static fromBytes(bytes: Uint8Array): IpAddress {
    if (bytes.length !== 4 && bytes.length !== 16) {
      throw new IpParseError("invalid-address", `an IP address has 4 or 16 bytes, not ${bytes.length}`);
    }
    if (bytes.length === 4) return new IpAddress(4, word(bytes, 0));
    const words = [word(bytes, 0), word(bytes, 4), word(bytes, 8), word(bytes, 12)];
    return new IpAddress(
      6,
      words.reduce((value, each) => (value << 32n) | BigInt(each), 0n),
    );
  }

  /** Makes an address from a number. Throws {@link IpParseError} when the number does not fit the family. */
  static fromValue(family: IpFamily, value: bigint): IpAddress {
    if (value < 0n || value > MAX[family]) {
      throw new IpParseError("invalid-address", `${value} is outside the IPv${family} address space`);
    }
    return new IpAddress(family, family === 4 ? Number(value) : value);
  }

  /** The address as an unsigned number of 32 or 128 bits. */
  get value(): bigint {
    return BigInt(this.unsigned);
  }

  /** 32 or 128. */
  get bits(): 32 | 128 {
    return BITS[this.family];
  }

  /** The address at `offset` from this one, which may be negative. Throws {@link IpParseError} past either end of the family's space. */
  plus(offset: bigint | number): IpAddress {
    return IpAddress.fromValue(this.family, this.value + BigInt(offset));
  }

  /** The last 32 bits as a number (for IPv4, the whole address). Faster to read than {@link value}. */
  get low32(): number {
    return typeof this.unsigned === "number" ? this.unsigned : Number(BigInt.asUintN(32, this.unsigned));
  }

  equals(other: IpAddress): boolean {
    return this.family === other.family && this.unsigned === other.unsigned;
  }

  /** Negative, zero or positive: IPv4 before IPv6, then by value. */
  compare(other: IpAddress): number {
    if (this.family !== other.family) return this.family - other.family;
    return this.unsigned < other.unsigned ? -1 : this.unsigned > other.unsigned ? 1 : 0;
  }

  /** 4 or 16 bytes in network order. */
  toBytes(): Uint8Array {
    const bytes = new Uint8Array(this.bits / 8);
    this.writeTo(bytes, 0);
    return bytes;
  }

  /** Writes the 4 or 16 bytes in network order. Throws `RangeError` if `bytes` has no room for them at `offset`. */
  writeTo(bytes: Uint8Array, offset: number): void {
    if (offset + this.bits / 8 > bytes.length) throw new RangeError(`${this} does not fit at ${offset}`);
    if (this.family === 4) setWord(bytes, offset, this.low32);
    else
      for (let at = 0; at < 4; at += 1) {
        setWord(bytes, offset + at * 4, Number(BigInt.asUintN(32, this.value >> BigInt(96 - at * 32))));
      }
  }

  /** True for addresses in fe80::/10 or 169.254.0.0/16. */
  get isLinkLocal(): boolean {
    return this.family === 4 ? this.low32 >>> 16 === 0xa9fe : this.value >> 118n === 0x3fan;
  }

  /** True for addresses in 127.0.0.0/8, and for ::1. */
  get isLoopback(): boolean {
    return this.family === 4 ? this.low32 >>> 24 === 127 : this.value === 1n;
  }

  /** True for 0.0.0.0 and ::. */
  get isUnspecified(): boolean {
    return this.unsigned === 0 || this.unsigned === 0n;
  }

  /** Canonical text: dotted quad, or RFC 5952. */
  toString(): string {
    this.#text ??= this.family === 4 ? formatV4(this.low32) : formatV6(this.value);
    return this.#text;
  }

  toJSON(): string {
    return this.toString();
  }
}

/** 32 bits in network order. Making a `DataView` for each address takes longer than making the address. */
function word(bytes: Uint8Array, at: number): number {
  const byte = (offset: number): number => bytes[at + offset] ?? 0;
  return byte(0) * 2 ** 24 + ((byte(1) << 16) | (byte(2) << 8) | byte(3));
}

function setWord(bytes: Uint8Array, at: number, value: number): void {
  bytes[at] = value >>> 24;
  bytes[at + 1] = value >>> 16;
  bytes[at + 2] = value >>> 8;
  bytes[at + 3] = value;
}

const [DOT, ZERO, NINE] = [46, 48, 57];

/** Four decimal numbers up to 255 without leading zeros, with a dot between each. */
function parseV4(text: string): number | undefined {
  let value = 0;
  let byte = 0;
  let digits = 0;
  let dots = 0;
  for (let at = 0; at < text.length; at += 1) {
    const code = text.charCodeAt(at);
    if (code === DOT) {
      if (digits === 0 || dots === 3) return undefined;
      value = value * 256 + byte;
      byte = 0;
      digits = 0;
      dots += 1;
      continue;
    }
    // The character is not a digit, or the number has a leading zero.
    if (code < ZERO || code > NINE || (digits > 0 && byte === 0)) return undefined;
    byte = byte * 10 + code - ZERO;
    digits += 1;
    if (byte > 255) return undefined;
  }
  return dots === 3 && digits > 0 ? value * 256 + byte : undefined;
}

function parseV6(text: string): bigint | undefined {
  const halves = text.split("::");
  if (halves.length > 2) return undefined;
  const head = parseGroups(halves[0] ?? "", halves.length === 1);
  const tail = halves.length === 2 ? parseGroups(halves[1] ?? "", true) : [];
  if (head === undefined || tail === undefined) return undefined;
  const missing = 8 - head.length - tail.length;
  // "::" replaces at least one group.
  if (halves.length === 1 ? missing !== 0 : missing < 1) return undefined;
  let value = 0n;
  for (const group of [...head, ...new Array<number>(missing).fill(0), ...tail]) value = (value << 16n) | BigInt(group);
  return value;
}

/** The 16-bit groups of one side of "::"; the last may be a dotted quad where the address ends. */
function parseGroups(text: string, atEnd: boolean): number[] | undefined {
  if (text === "") return [];
  const groups: number[] = [];
  const parts = text.split(":");
  for (const [at, part] of parts.entries()) {
    if (part.includes(".")) {
      const quad = atEnd && at === parts.length - 1 ? parseV4(part) : undefined;
      if (quad === undefined) return undefined;
      groups.push(quad >>> 16, quad & 0xffff);
    } else {
      if (!/^[0-9a-fA-F]{1,4}$/.test(part)) return undefined;
      groups.push(Number.parseInt(part, 16));
    }
  }
  return groups.length > 8 ? undefined : groups;
}

function formatV4(number: number): string {
  return `${number >>> 24}.${(number >>> 16) & 255}.${(number >>> 8) & 255}.${number & 255}`;
}

function formatV6(value: bigint): string {
  const groups: number[] = [];
  for (let shift = 112n; shift >= 0n; shift -= 16n) groups.push(Number((value >> shift) & 0xffffn));
  // RFC 5952 section 5: IPv4-mapped addresses are written with a dotted quad.
  if (value >> 32n === 0xffffn) return `::ffff:${formatV4(Number(value & 0xffff_ffffn))}`;
  const gap = longestZeroRun(groups);
  const hex = groups.map((group) => group.toString(16));
  if (gap === undefined) return hex.join(":");
  return `${hex.slice(0, gap.start).join(":")}::${hex.slice(gap.start + gap.length).join(":")}`;
}

/** RFC 5952 section 4.2: the first longest run of at least two zero groups. */
function longestZeroRun(groups: readonly number[]): { readonly start: number; readonly length: number } | undefined {
  let best: { start: number; length: number } | undefined;
  for (let start = 0; start < groups.length; start += 1) {
    let length = 0;
    while (groups[start + length] === 0) length += 1;
    if (length >= 2 && length > (best?.length ?? 0)) best = { start, length };
    start += length;
  }
  return best;
}
