/** The part of DER (X.690) that certificates need. Each function returns one whole element: tag, length, content. */

/** Universal and context-specific tags, as one byte. */
const TAG = {
  boolean: 0x01,
  integer: 0x02,
  bitString: 0x03,
  octetString: 0x04,
  oid: 0x06,
  utf8String: 0x0c,
  utcTime: 0x17,
  generalizedTime: 0x18,
  sequence: 0x30,
  set: 0x31,
} as const;

/** An element with this tag. */
export function element(tag: number, ...parts: readonly Uint8Array[]): Buffer {
  const content = Buffer.concat(parts);
  return Buffer.concat([Buffer.from([tag, ...lengthOf(content.length)]), content]);
}

/** One byte below 128; else the number of bytes, then these bytes, most significant first. */
function lengthOf(length: number): number[] {
  if (length < 0x80) return [length];
  const bytes: number[] = [];
  for (let rest = length; rest > 0; rest = Math.floor(rest / 256)) bytes.unshift(rest % 256);
  return [0x80 | bytes.length, ...bytes];
}

/** SEQUENCE. */
export const sequence = (...parts: readonly Uint8Array[]): Buffer => element(TAG.sequence, ...parts);
/** SET; DER requires sorted members, so this function takes only one member. */
export const setOf = (member: Uint8Array): Buffer => element(TAG.set, member);
/** BOOLEAN TRUE; FALSE is always the default, and DER leaves out default values. */
export const TRUE: Buffer = element(TAG.boolean, Buffer.from([0xff]));
/** OCTET STRING. */
export const octets = (bytes: Uint8Array): Buffer => element(TAG.octetString, bytes);
/** UTF8String. */
export const utf8 = (text: string): Buffer => element(TAG.utf8String, Buffer.from(text, "utf8"));
/** `[number]` around whole elements (constructed, context-specific). */
export const explicit = (number: number, ...parts: readonly Uint8Array[]): Buffer => element(0xa0 | number, ...parts);
/** `[number]` in the place of a primitive type's tag. */
export const implicit = (number: number, content: Uint8Array): Buffer => element(0x80 | number, content);
/** BIT STRING; `unused` bits at the end of the last byte do not count. */
export const bits = (bytes: Uint8Array, unused = 0): Buffer => element(TAG.bitString, Buffer.from([unused]), bytes);

/** INTEGER of an unsigned number, most significant byte first; in the fewest bytes, and never negative. */
export function unsigned(bytes: Uint8Array): Buffer {
  let start = 0;
  while (start < bytes.length - 1 && bytes[start] === 0) start += 1;
  const short = bytes.subarray(start);
  const sign = short.length === 0 || (short[0] ?? 0) >= 0x80 ? [0] : [];
  return element(TAG.integer, Buffer.from(sign), short);
}

/** OBJECT IDENTIFIER from its dotted text. */
export function oid(dotted: string): Buffer {
  const [first = 0, second = 0, ...rest] = dotted.split(".").map(Number);
  const bytes = [first * 40 + second];
  for (const part of rest) {
    const groups = [part & 0x7f];
    for (let left = part >>> 7; left > 0; left >>>= 7) groups.unshift((left & 0x7f) | 0x80);
    bytes.push(...groups);
  }
  return element(TAG.oid, Buffer.from(bytes));
}

/** Time in whole seconds: UTCTime up to 2049, GeneralizedTime from 2050 on (RFC 5280 4.1.2.5). */
export function time(ms: number): Buffer {
  const text = `${new Date(ms).toISOString().slice(0, 19).replaceAll(/[-:T]/g, "")}Z`;
  const year = Number(text.slice(0, 4));
  return year < 2050
    ? element(TAG.utcTime, Buffer.from(text.slice(2), "ascii"))
    : element(TAG.generalizedTime, Buffer.from(text, "ascii"));
}
