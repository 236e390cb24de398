import { Cidr, type IpFamily } from "#base/ip";
import type { AddressPoolSpec, SubnetSet } from "./types.ts";

/** `index` of an AddressBlock is an int32, so this is the highest usable index (docs/spec/pod-network.md#2.2). */
export const MAX_BLOCK_INDEX = 2 ** 31 - 1;
/** The default of `spec.blockSizeBits`. */
export const DEFAULT_BLOCK_SIZE_BITS = 5;

/** A pool's spec, parsed. */
export interface PoolLayout {
  readonly blockSizeBits: number;
  readonly subnets: readonly ParsedSubnet[];
}

/** One entry of a pool's subnets, parsed: at least one family; with both, the host bits are equal. */
export interface ParsedSubnet {
  readonly ipv4: Cidr | undefined;
  readonly ipv6: Cidr | undefined;
}

/** The prefixes of one block: one for each family of its subnet. */
export interface BlockCidrs {
  readonly ipv4: Cidr | undefined;
  readonly ipv6: Cidr | undefined;
}

/** Parses a stored spec. Throws `IpParseError` for a malformed CIDR; validation refuses such a spec before it is stored. */
export function parsePool(spec: AddressPoolSpec): PoolLayout {
  return {
    blockSizeBits: spec.blockSizeBits ?? DEFAULT_BLOCK_SIZE_BITS,
    subnets: spec.subnets.map((subnet) => ({ ipv4: parse(subnet, "ipv4"), ipv6: parse(subnet, "ipv6") })),
  };
}

function parse(subnet: SubnetSet, field: "ipv4" | "ipv6"): Cidr | undefined {
  const text = subnet[field];
  return text === undefined ? undefined : Cidr.parse(text);
}

/** The number of blocks in a subnet; 0 if the subnet is smaller than one block. A bigint, because the number may be too large otherwise. */
export function subnetBlocks(subnet: ParsedSubnet, blockSizeBits: number): bigint {
  const hostBits = (subnet.ipv4 ?? subnet.ipv6)?.hostBits;
  return hostBits === undefined || hostBits < blockSizeBits ? 0n : 1n << BigInt(hostBits - blockSizeBits);
}

/** The number of blocks that can be carved from a pool: all its blocks, but at most one for each possible index. */
export function maxBlocks(pool: PoolLayout): number {
  let total = 0n;
  for (const subnet of pool.subnets) total += subnetBlocks(subnet, pool.blockSizeBits);
  const usable = BigInt(MAX_BLOCK_INDEX) + 1n;
  return Number(total < usable ? total : usable);
}

/**
 * The prefixes of block `index`; indexes continue from one subnet to the next (docs/spec/pod-network.md#2.3). `undefined`: the pool has no
 * such block. Throws `RangeError` for an index that is not a whole number from 0 to {@link MAX_BLOCK_INDEX}.
 */
export function blockCidrs(pool: PoolLayout, index: number): BlockCidrs | undefined {
  if (!Number.isInteger(index) || index < 0 || index > MAX_BLOCK_INDEX) {
    throw new RangeError(`${index} is not a block index: a block index is a whole number from 0 to ${MAX_BLOCK_INDEX}`);
  }
  let rest = BigInt(index);
  for (const subnet of pool.subnets) {
    const count = subnetBlocks(subnet, pool.blockSizeBits);
    if (rest < count) {
      const part = (cidr: Cidr | undefined): Cidr | undefined =>
        cidr?.subnet(cidr.base.bits - pool.blockSizeBits, rest);
      return { ipv4: part(subnet.ipv4), ipv6: part(subnet.ipv6) };
    }
    rest -= count;
  }
  return undefined;
}

/** The families that every subnet of the pool has. */
export function poolFamilies(pool: PoolLayout): IpFamily[] {
  const families: IpFamily[] = [];
  if (pool.subnets.length > 0 && pool.subnets.every((subnet) => subnet.ipv4 !== undefined)) families.push(4);
  if (pool.subnets.length > 0 && pool.subnets.every((subnet) => subnet.ipv6 !== undefined)) families.push(6);
  return families;
}

/** True if at least one address belongs to both subnets. */
export function subnetsOverlap(a: ParsedSubnet, b: ParsedSubnet): boolean {
  return (
    (a.ipv4 !== undefined && b.ipv4 !== undefined && a.ipv4.overlaps(b.ipv4)) ||
    (a.ipv6 !== undefined && b.ipv6 !== undefined && a.ipv6.overlaps(b.ipv6))
  );
}

/** The name of an AddressBlock. */
export function blockName(pool: string, index: number): string {
  return `${pool}-${index}`;
}
