/**
 * Random numbers that a failed test can repeat.
 *
 * Owns: the generator (mulberry32). Does not know: where a seed comes from.
 *
 * ```ts
 * const random = seeded(7);
 * const isLost = random() < 0.3;
 * ```
 */

/** A source of numbers in [0, 1) that follow from a seed. */
export function seeded(seed: number): () => number {
  let state = seed;
  return () => {
    state = (state + 0x6d2b79f5) | 0;
    let mixed = Math.imul(state ^ (state >>> 15), 1 | state);
    mixed = (mixed + Math.imul(mixed ^ (mixed >>> 7), 61 | mixed)) ^ mixed;
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 2 ** 32;
  };
}
