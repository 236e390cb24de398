import type { Cidr } from "#base/ip";

/** The two halves of a prefix, the place of the prefix itself if it was added, and the smallest place at or below. */
interface Branch {
  readonly halves: [Branch | undefined, Branch | undefined];
  place: number | undefined;
  least: number;
}

/**
 * Prefixes of one family, each with its place in a list, for the question which of them overlaps with another one. Two prefixes overlap only if one contains
 * the other, so an answer takes at most as many steps as the prefix has bits, however many prefixes there are.
 */
export class PrefixTree {
  readonly #root: Branch = branch();

  /** The smallest place of a prefix that overlaps; `undefined`: there is none. */
  overlapping(cidr: Cidr): number | undefined {
    let found = Number.POSITIVE_INFINITY;
    let at: Branch | undefined = this.#root;
    for (const bit of bitsOf(cidr)) {
      found = Math.min(found, at.place ?? found);
      at = at.halves[bit];
      if (at === undefined) break;
    }
    if (at !== undefined) found = Math.min(found, at.least);
    return found === Number.POSITIVE_INFINITY ? undefined : found;
  }

  /** Adds a prefix. Of equal prefixes the smallest place counts. */
  add(cidr: Cidr, place: number): void {
    let at = this.#root;
    at.least = Math.min(at.least, place);
    for (const bit of bitsOf(cidr)) {
      const half = at.halves[bit] ?? branch();
      at.halves[bit] = half;
      at = half;
      at.least = Math.min(at.least, place);
    }
    at.place = Math.min(at.place ?? place, place);
  }
}

function branch(): Branch {
  return { halves: [undefined, undefined], place: undefined, least: Number.POSITIVE_INFINITY };
}

function* bitsOf({ base, prefixLength }: Cidr): Generator<0 | 1> {
  const bytes = base.toBytes();
  for (let at = 0; at < prefixLength; at += 1) yield (((bytes[at >> 3] ?? 0) >> (7 - (at & 7))) & 1) === 1 ? 1 : 0;
}
