import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "fast-check";
import { Http2Error } from "./errors.ts";
import { decodeHuffman } from "./huffman.ts";

/** Appendix B of RFC 7541 for a few symbols of each kind, as printed there: the code is canonical, so these pin the table. */
const PRINTED: Readonly<Record<number, string>> = {
  0: "1111111111000",
  9: "111111111111111111101010",
  10: "111111111111111111111111111100",
  32: "010100",
  37: "010101",
  48: "00000",
  97: "00011",
  101: "00101",
  116: "01001",
  122: "1111011",
  126: "1111111111101",
  127: "1111111111111111111111111100",
  128: "11111111111111100110",
  192: "11111111111111111111100000",
  249: "1111111111111111111111111110",
  255: "11111111111111111111101110",
};

function packed(bits: string): Uint8Array {
  const padded = bits.padEnd(Math.ceil(bits.length / 8) * 8, "1");
  return Uint8Array.from(padded.match(/.{8}/g) ?? [], (byte) => Number.parseInt(byte, 2));
}

/** Every code, found by walking the decoder: a bit string that decodes to one symbol without padding of its own. */
function codes(): Map<number, string> {
  const found = new Map<number, string>();
  let level = [""];
  for (let length = 1; length <= 30 && level.length > 0; length += 1) {
    const next: string[] = [];
    for (const prefix of level.flatMap((bits) => [`${bits}0`, `${bits}1`])) {
      // Eight more bits of ones are no code, but leave nothing undecided before them: try it with a known symbol behind.
      const symbol = symbolOf(prefix);
      if (symbol === undefined) next.push(prefix);
      else found.set(symbol, prefix);
    }
    level = next;
  }
  return found;
}

/** The symbol whose code `bits` is: with "0" (00000) behind it, exactly it and "0" come out. */
function symbolOf(bits: string): number | undefined {
  try {
    const out = decodeHuffman(packed(`${bits}00000`));
    return out.length === 2 && out[1] === 48 ? out[0] : undefined;
  } catch (error) {
    if (error instanceof Http2Error) return undefined;
    throw error;
  }
}

test("decodeHuffman: the codes that RFC 7541 appendix B prints", () => {
  for (const [symbol, bits] of Object.entries(PRINTED))
    assert.deepEqual([...decodeHuffman(packed(bits))], [Number(symbol)], bits);
});

test("decodeHuffman: 256 codes, none a prefix of another, that leave room for EOS alone (Kraft sum)", () => {
  const all = codes();
  assert.equal(all.size, 256);
  const sum = [...all.values()].reduce((total, { length }) => total + 2 ** (30 - length), 0);
  assert.equal(sum, 2 ** 30 - 1, "EOS, thirty ones, is the one code that is left");
  fc.assert(
    fc.property(fc.uint8Array(), (bytes) => {
      const bits = Array.from(bytes, (byte) => all.get(byte)).join("");
      assert.deepEqual(decodeHuffman(packed(bits)), bytes);
    }),
  );
});

test("decodeHuffman: EOS, padding of a whole byte and padding of zeros are refused", () => {
  for (const bits of ["1".repeat(30), `00000${"1".repeat(11)}`, "00000000", "00000110"]) {
    assert.throws(() => decodeHuffman(packed(bits)), { name: "Http2Error", code: "malformed" }, bits);
  }
});
