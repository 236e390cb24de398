import { type Cidr, IpAddress, type IpFamily } from "#base/ip";

/** Addresses of one family from `first` to `last`, both included. */
export interface AddressRange {
  readonly first: IpAddress;
  readonly last: IpAddress;
}

/** Values of addresses, both included. */
type Span = readonly [first: bigint, last: bigint];

/**
 * Pure: the destinations that a client of an Egress sends into its tunnel (docs/spec/pod-network.md#7.2), in one family, as disjoint ranges in order. A
 * destination whose base is in a range of `inCluster` counts everywhere; any other one counts outside of all these ranges. `never` is left out.
 */
export function acceptedDestinations(
  family: IpFamily,
  destinations: readonly Cidr[],
  { inCluster, never }: { readonly inCluster: readonly Cidr[]; readonly never: readonly Cidr[] },
): AddressRange[] {
  const of = (all: readonly Cidr[]): Cidr[] => all.filter((one) => one.family === family);
  const isNarrow = ({ base }: Cidr): boolean => inCluster.some((range) => range.contains(base));
  const narrow = union(of(destinations).filter(isNarrow).map(spanOf));
  const wide = union(
    of(destinations)
      .filter((one) => !isNarrow(one))
      .map(spanOf),
  );
  const inside = union(of(inCluster).map(spanOf));
  const accepted = union([...narrow, ...without(wide, inside)]);
  return without(accepted, union(of(never).map(spanOf))).map(([first, last]) => ({
    first: IpAddress.fromValue(family, first),
    last: IpAddress.fromValue(family, last),
  }));
}

const spanOf = (cidr: Cidr): Span => [cidr.first.value, cidr.last.value];

/** Spans in order; those that overlap or adjoin are one. */
function union(spans: readonly Span[]): Span[] {
  const merged: Span[] = [];
  for (const [first, last] of spans.toSorted(([a], [b]) => (a < b ? -1 : a > b ? 1 : 0))) {
    const before = merged.at(-1);
    if (before === undefined || first > before[1] + 1n) merged.push([first, last]);
    else if (last > before[1]) merged[merged.length - 1] = [before[0], last];
  }
  return merged;
}

/** Returns the parts of `spans` that are in none of `others`. Both are results of {@link union}. */
function without(spans: readonly Span[], others: readonly Span[]): Span[] {
  const left: Span[] = [];
  let at = 0;
  for (const [first, last] of spans) {
    let from = first;
    while (at > 0 && (others[at - 1]?.[1] ?? -1n) >= first) at -= 1;
    for (; at < others.length; at += 1) {
      const [start, end] = others[at] as Span;
      if (start > last) break;
      if (end < from) continue;
      if (start > from) left.push([from, start - 1n]);
      from = end + 1n;
    }
    if (from <= last) left.push([from, last]);
  }
  return left;
}
