import { type Cidr, IpAddress, type IpFamily } from "#base/ip";

/** Addresses from `from` to `to`, both included, of one family. */
export interface AddressRange {
  readonly from: IpAddress;
  readonly to: IpAddress;
}

/** Pure: the fewest ranges that have the addresses of these networks in one family, in order. No two of them touch. */
export function mergeRanges(networks: readonly Cidr[], family: IpFamily): AddressRange[] {
  const all = networks
    .filter((network) => network.family === family)
    .map((network) => ({ from: network.base.value, to: network.base.value + (1n << BigInt(network.hostBits)) - 1n }))
    .sort((a, b) => (a.from < b.from ? -1 : a.from > b.from ? 1 : 0));
  const merged: { from: bigint; to: bigint }[] = [];
  for (const one of all) {
    const last = merged.at(-1);
    if (last === undefined || one.from > last.to + 1n) merged.push(one);
    else if (one.to > last.to) last.to = one.to;
  }
  return merged.map(({ from, to }) => ({
    from: IpAddress.fromValue(family, from),
    to: IpAddress.fromValue(family, to),
  }));
}
