import type { Cidr } from "#base/ip";

/** Ranges of one family without those inside others: the kernel refuses overlapping intervals. Pure. */
export function withoutNested(ranges: readonly Cidr[]): Cidr[] {
  const inOrder = [...ranges].sort((a, b) => compare(a.base.value, b.base.value) || a.prefixLength - b.prefixLength);
  const kept: Cidr[] = [];
  // Prefixes never overlap in part: a range inside any earlier one is inside the last one that was kept.
  for (const range of inOrder) if (kept.at(-1)?.contains(range) !== true) kept.push(range);
  return kept;
}

/** Pure: finds, in a few steps each, which of these ranges overlap another one. The ranges must not overlap each other, and are of one family. */
export function overlapFinder(ranges: readonly Cidr[]): (range: Cidr) => readonly Cidr[] {
  const inOrder = [...ranges].sort((a, b) => compare(a.base.value, b.base.value));
  /** The number of ranges that begin before an address. */
  const countBefore = (address: bigint): number => {
    let [low, high] = [0, inOrder.length];
    while (low < high) {
      const middle = (low + high) >> 1;
      if ((inOrder[middle]?.base.value ?? address) < address) low = middle + 1;
      else high = middle;
    }
    return low;
  };
  return (range) => {
    const first = countBefore(range.base.value);
    const last = countBefore(range.base.value + (1n << BigInt(range.hostBits)));
    const around = inOrder[first - 1];
    return [...(around?.contains(range) === true ? [around] : []), ...inOrder.slice(first, last)];
  };
}

function compare(a: bigint, b: bigint): number {
  return a < b ? -1 : a > b ? 1 : 0;
}
