/** ITU-T X.690 section 8: the tags that a certificate needs. */
const TAG = {
  boolean: 0x01,
  integer: 0x02,
  bitString: 0x03,
  octetString: 0x04,
  oid: 0x06,
  utf8: 0x0c,
  utcTime: 0x17,
  generalizedTime: 0x18,
  sequence: 0x30,
  set: 0x31,
} as const;

/** One element: tag, length, content. */
export function element(tag: number, ...content: readonly Uint8Array[]): Uint8Array {
  const body = Buffer.concat(content);
  return Buffer.concat([Buffer.of(tag), lengthOf(body.length), body]);
}

export const sequence = (...items: readonly Uint8Array[]): Uint8Array => element(TAG.sequence, ...items);

export const set = (...items: readonly Uint8Array[]): Uint8Array => element(TAG.set, ...items);

export const octetString = (bytes: Uint8Array): Uint8Array => element(TAG.octetString, bytes);

export const utf8 = (text: string): Uint8Array => element(TAG.utf8, Buffer.from(text, "utf8"));

export const truth = (): Uint8Array => element(TAG.boolean, Buffer.of(0xff));

/** An unsigned number, big-endian. */
export function integer(bytes: Uint8Array): Uint8Array {
  const first = bytes.findIndex((byte) => byte !== 0);
  const rest = first < 0 ? Buffer.of(0) : Buffer.from(bytes.subarray(first));
  // The highest bit is the sign.
  return element(TAG.integer, (rest[0] ?? 0) >= 0x80 ? Buffer.concat([Buffer.of(0), rest]) : rest);
}

/** Bits, the last `unused` of which do not count. */
export const bitString = (bytes: Uint8Array, unused = 0): Uint8Array =>
  element(TAG.bitString, Buffer.of(unused), bytes);

/** `2.5.29.19`. */
export function oid(text: string): Uint8Array {
  const [first = 0, second = 0, ...rest] = text.split(".").map(Number);
  const bytes = [first * 40 + second, ...rest].flatMap((part) => {
    const groups = [part & 0x7f];
    for (let left = part >>> 7; left > 0; left >>>= 7) groups.unshift((left & 0x7f) | 0x80);
    return groups;
  });
  return element(TAG.oid, Buffer.from(bytes));
}

/** `YYYYMMDDHHMMSSZ`; years before 2050 in the short form, as RFC 5280 section 4.1.2.5 requires. */
export function time(text: string): Uint8Array {
  const isShort = Number(text.slice(0, 4)) < 2050;
  return element(isShort ? TAG.utcTime : TAG.generalizedTime, Buffer.from(isShort ? text.slice(2) : text, "latin1"));
}

/** A context-specific element; `isConstructed` when it holds elements. */
export function tagged(number: number, content: Uint8Array, isConstructed: boolean): Uint8Array {
  return element(0x80 | (isConstructed ? 0x20 : 0) | number, content);
}

function lengthOf(length: number): Uint8Array {
  if (length < 0x80) return Buffer.of(length);
  const bytes: number[] = [];
  for (let left = length; left > 0; left >>>= 8) bytes.unshift(left & 0xff);
  return Buffer.of(0x80 | bytes.length, ...bytes);
}
