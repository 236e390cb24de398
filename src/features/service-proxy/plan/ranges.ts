import type { Cidr } from "#base/ip";

/** Ranges of one family without those inside others: the kernel refuses overlapping intervals. Pure. */
export function withoutNested(ranges: readonly Cidr[]): Cidr[] {
  const inOrder = [...ranges].sort((a, b) => compare(a.base.value, b.base.value) || a.prefixLength - b.prefixLength);
  const kept: Cidr[] = [];
  // Prefixes never overlap in part: a range inside any earlier one is inside the last one that was kept.
  for (const range of inOrder) if (kept.at(-1)?.contains(range) !== true) kept.push(range);
  return kept;
}

function compare(a: bigint, b: bigint): number {
  return a < b ? -1 : a > b ? 1 : 0;
}
