import type { Cidr } from "#base/ip";

/** Ranges of one family without those inside others, which say nothing, and the kernel refuses intervals that overlap. Pure. */
export function withoutNested(ranges: readonly Cidr[]): Cidr[] {
  const inOrder = [...ranges].sort((a, b) => compare(a.base.value, b.base.value) || a.prefixLength - b.prefixLength);
  const kept: Cidr[] = [];
  // Ranges never overlap in part: one that is inside any of those before it is inside the last that was kept.
  for (const range of inOrder) if (kept.at(-1)?.contains(range) !== true) kept.push(range);
  return kept;
}

function compare(a: bigint, b: bigint): number {
  return a < b ? -1 : a > b ? 1 : 0;
}
