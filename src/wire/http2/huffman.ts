import { Http2Error } from "./errors.ts";

/**
 * Code lengths of the symbols 0 to 255, RFC 7541 Appendix B. The code is canonical: codes of one length follow the order
 * of their symbols, so lengths are sufficient.
 */
const LENGTHS: readonly number[] = [
  13, 23, 28, 28, 28, 28, 28, 28, 28, 24, 30, 28, 28, 30, 28, 28, 28, 28, 28, 28, 28, 28, 30, 28, 28, 28, 28, 28, 28,
  28, 28, 28, 6, 10, 10, 12, 13, 6, 8, 11, 10, 10, 8, 11, 8, 6, 6, 6, 5, 5, 5, 6, 6, 6, 6, 6, 6, 6, 7, 8, 15, 6, 12, 10,
  13, 6, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 8, 7, 8, 13, 19, 13, 14, 6, 15, 5, 6, 5, 6,
  5, 6, 6, 6, 5, 7, 7, 6, 6, 6, 5, 6, 7, 6, 5, 5, 6, 7, 7, 7, 7, 7, 15, 11, 14, 13, 28, 20, 22, 20, 20, 22, 22, 22, 23,
  22, 23, 23, 23, 23, 23, 24, 23, 24, 24, 22, 23, 24, 23, 23, 23, 23, 21, 22, 23, 22, 23, 23, 24, 22, 21, 20, 22, 22,
  23, 23, 21, 23, 22, 22, 24, 21, 22, 23, 23, 21, 21, 22, 21, 23, 22, 23, 23, 20, 22, 22, 22, 23, 22, 22, 23, 26, 26,
  20, 19, 22, 23, 22, 25, 26, 26, 26, 27, 27, 26, 24, 25, 19, 21, 26, 27, 27, 26, 27, 24, 21, 21, 26, 26, 28, 27, 27,
  27, 20, 24, 20, 21, 22, 21, 21, 23, 22, 22, 25, 25, 24, 24, 26, 23, 26, 27, 26, 26, 27, 27, 27, 27, 27, 28, 27, 27,
  27, 27, 27, 26,
];

/** Per code length: the first code, the symbols in order. */
interface Level {
  readonly first: number;
  readonly symbols: readonly number[];
}

let levels: readonly (Level | undefined)[] | undefined;

/** Decodes an HPACK Huffman string. Throws {@link Http2Error} for an invalid code and for invalid padding. */
export function decodeHuffman(bytes: Uint8Array): Uint8Array {
  levels ??= buildLevels();
  const out: number[] = [];
  let code = 0;
  let length = 0;
  for (const byte of bytes) {
    for (let bit = 7; bit >= 0; bit -= 1) {
      code = code * 2 + ((byte >> bit) & 1);
      length += 1;
      const level = levels[length];
      const symbol = level?.symbols[code - level.first];
      if (level !== undefined && symbol !== undefined && code >= level.first) {
        out.push(symbol);
        code = 0;
        length = 0;
      } else if (length > 30) {
        throw new Http2Error("malformed", "a header has an invalid Huffman code");
      }
    }
  }
  // RFC 7541 section 5.2: padding is less than a byte, of ones.
  if (length > 7 || code !== 2 ** length - 1) throw new Http2Error("malformed", "a header has invalid Huffman padding");
  return Uint8Array.from(out);
}

/** One pass over the symbols: this code runs once at each start of the CNI executable, before it is compiled. */
function buildLevels(): (Level | undefined)[] {
  const symbols: number[][] = [];
  for (let symbol = 0; symbol < LENGTHS.length; symbol += 1) {
    const length = LENGTHS[symbol] ?? 0;
    const level = symbols[length];
    if (level === undefined) symbols[length] = [symbol];
    else level.push(symbol);
  }
  const table: (Level | undefined)[] = [];
  let code = 0;
  for (let length = 1; length <= 30; length += 1) {
    code *= 2;
    const own = symbols[length];
    table[length] = own === undefined ? undefined : { first: code, symbols: own };
    code += own?.length ?? 0;
  }
  return table;
}
