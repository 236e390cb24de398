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

/** Codes of one length: the first, and their symbols in order. */
interface Level {
  readonly first: number;
  readonly symbols: readonly number[];
}

/** Codes of at most this many bits are found by one look. All characters of usual headers have such codes. */
const SHORT_BITS = 8;

interface Tables {
  /** The levels of the decoding table, by code length. */
  readonly levels: readonly (Level | undefined)[];
  /** The entries for the next 8 bits: the length times 256, and the symbol; 0 if the code is longer. */
  readonly short: Uint16Array;
}

let tables: Tables | undefined;

/** Decodes an HPACK Huffman string. Throws {@link Http2Error} for an invalid code and for invalid padding. */
export function decodeHuffman(bytes: Uint8Array): Uint8Array {
  tables ??= buildTables();
  const { short } = tables;
  // No code is shorter than 5 bits.
  const out = new Uint8Array(Math.floor((bytes.length * 8) / 5));
  let end = 0;
  /** The bits that were read and not used: `count` of them, at most 37, in the low bits. */
  let bits = 0;
  let count = 0;
  for (let at = 0; at < bytes.length || count >= SHORT_BITS; ) {
    if (count < SHORT_BITS) {
      bits = ((bits << 8) | (bytes[at] as number)) & 0xffff;
      count += 8;
      at += 1;
    }
    const found = short[(bits >>> (count - SHORT_BITS)) & 0xff] as number;
    if (found !== 0) {
      out[end] = found & 0xff;
      end += 1;
      count -= found >>> 8;
      continue;
    }
    // A code of more than 8 bits: bit by bit.
    let code = (bits >>> (count - SHORT_BITS)) & 0xff;
    let length = SHORT_BITS;
    count -= SHORT_BITS;
    for (let symbol: number | undefined; symbol === undefined; ) {
      if (count === 0) {
        const next = bytes[at];
        // The rest is padding, which is shorter than a byte; or all of it is ones, which is no code.
        if (next === undefined || length >= 30) throw invalid();
        bits = next;
        count = 8;
        at += 1;
      }
      count -= 1;
      code = code * 2 + ((bits >>> count) & 1);
      length += 1;
      const level = tables.levels[length];
      if (level !== undefined && code >= level.first) symbol = level.symbols[code - level.first];
      if (symbol !== undefined) {
        out[end] = symbol;
        end += 1;
      } else if (length >= 30) throw invalid();
    }
  }
  // What is left is shorter than a byte: short codes, then padding of ones (RFC 7541 section 5.2).
  while (count > 0) {
    const left = bits & ((1 << count) - 1);
    const found = short[((left << (SHORT_BITS - count)) | ((1 << (SHORT_BITS - count)) - 1)) & 0xff] as number;
    const length = found >>> 8;
    if (found === 0 || length > count) {
      if (left !== (1 << count) - 1) throw invalid();
      break;
    }
    out[end] = found & 0xff;
    end += 1;
    count -= length;
  }
  return out.subarray(0, end);
}

function invalid(): Http2Error {
  return new Http2Error("malformed", "a header has an invalid Huffman code or padding");
}

/** One pass over the symbols: this code runs once at each start of the CNI executable, before it is compiled. */
function buildTables(): Tables {
  const symbols: number[][] = [];
  for (let symbol = 0; symbol < LENGTHS.length; symbol += 1) {
    const length = LENGTHS[symbol] ?? 0;
    const level = symbols[length];
    if (level === undefined) symbols[length] = [symbol];
    else level.push(symbol);
  }
  const levels: (Level | undefined)[] = [];
  const short = new Uint16Array(256);
  let code = 0;
  for (let length = 1; length <= 30; length += 1) {
    code *= 2;
    const own = symbols[length];
    levels[length] = own === undefined ? undefined : { first: code, symbols: own };
    if (length <= SHORT_BITS && own !== undefined) {
      const width = 1 << (SHORT_BITS - length);
      for (const [at, symbol] of own.entries())
        short.fill(length * 256 + symbol, (code + at) * width, (code + at + 1) * width);
    }
    code += own?.length ?? 0;
  }
  return { levels, short };
}
