/**
 * Characters for strings of fast-check: any, in place of its unit "binary", with the same shrinking; and those that a terminal acts on.
 *
 * Owns: the arbitraries. Does not know: what is tested.
 *
 * ```ts
 * fc.string({ unit: character });
 * ```
 */
import fc from "fast-check";

const SURROGATES = { first: 0xd800, count: 0x800 } as const;
const COUNT = 0x11_0000 - SURROGATES.count;

/**
 * Every code point but surrogates. That of fast-check puts all of them into a table at its first use in a process, which takes half a second
 * of the processor, and 60 MB that each later collection visits.
 */
export const character: fc.Arbitrary<string> = fc.nat(COUNT - 1).map(characterAt, placeOf);

/** Any 16-bit units, most of them those that a terminal or a reader of lines acts on. */
export const terminalUnit: fc.Arbitrary<string> = fc.oneof(
  fc.constantFrom(
    "\n",
    "\r",
    "\t",
    "\0",
    "\x1b",
    "\x7f",
    "\x85",
    "\x9b",
    "\u2028",
    "\u202e",
    "\u2066",
    "\ud800",
    "\udfff",
  ),
  fc.constantFrom("a", "é", "\\", '"', "😀", "字", "=", " "),
  fc.nat(0xffff).map((code) => String.fromCharCode(code)),
);

function characterAt(place: number): string {
  return String.fromCodePoint(place < SURROGATES.first ? place : place + SURROGATES.count);
}

function placeOf(value: unknown): number {
  const code = typeof value === "string" && value !== "" ? (value.codePointAt(0) ?? 0) : Number.NaN;
  const isSurrogate = code >= SURROGATES.first && code < SURROGATES.first + SURROGATES.count;
  if (Number.isNaN(code) || isSurrogate || value !== String.fromCodePoint(code))
    throw new Error(`${JSON.stringify(value)} is not one character`);
  return code < SURROGATES.first ? code : code - SURROGATES.count;
}
