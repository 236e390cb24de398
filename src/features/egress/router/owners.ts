import { Cidr, type IpAddress, IpParseError } from "#base/ip";
import type { StoredMeta } from "#kube/client";
import { type AddressBlock, type AddressPool, NODE_LABEL, type PoolLayout, parsePool } from "#kube/coil";

type KeptMeta = Pick<StoredMeta, "name" | "uid" | "resourceVersion">;

/** An AddressPool as a router keeps it. */
export interface OwnerPool {
  readonly metadata: KeptMeta;
  /** Absent: its subnets cannot be read. No block of it can have been made. */
  readonly layout?: PoolLayout;
}

/** An AddressBlock as a router keeps it. */
export interface OwnerBlock {
  readonly metadata: KeptMeta;
  /** Name of the node that has it. */
  readonly node: string;
  readonly prefixes: readonly string[];
}

const keptMeta = ({ name, uid, resourceVersion }: StoredMeta): KeptMeta => ({ name, uid, resourceVersion });

/** Pure: the view of an AddressPool. */
export function ownerPool({ metadata, spec }: AddressPool): OwnerPool {
  if (spec === undefined) return { metadata: keptMeta(metadata) };
  try {
    return { metadata: keptMeta(metadata), layout: parsePool(spec) };
  } catch (error) {
    if (!(error instanceof IpParseError)) throw error;
    return { metadata: keptMeta(metadata) };
  }
}

/** Pure: the view of an AddressBlock. */
export function ownerBlock({ metadata, ipv4, ipv6 }: AddressBlock): OwnerBlock {
  const prefixes = [ipv4, ipv6].flatMap((text) => (text === undefined ? [] : (Cidr.tryParse(text) ?? [])));
  return { metadata: keptMeta(metadata), node: metadata.labels?.[NODE_LABEL] ?? "", prefixes: prefixes.map(String) };
}

/** The index of a store of {@link OwnerBlock} by prefix. */
export const OWNER_INDEXES = { prefix: ({ prefixes }: OwnerBlock) => prefixes };

/**
 * Makes the function that says whether a pod of a node can have an address: an address of a pool is of a block of this node; of other addresses nothing is
 * known (docs/spec/pod-network.md#9.1). `blocksOf`: the blocks with a prefix.
 */
export function addressOwners(
  pools: readonly OwnerPool[],
  blocksOf: (prefix: string) => readonly OwnerBlock[],
): (address: IpAddress, node: string) => boolean {
  const subnets = pools.flatMap(({ layout }) =>
    (layout?.subnets ?? []).flatMap(({ ipv4, ipv6 }) =>
      [ipv4, ipv6].flatMap((range) => (range === undefined ? [] : [{ range, bits: layout?.blockSizeBits ?? 0 }])),
    ),
  );
  return (address, node) => {
    const holding = subnets.filter(({ range }) => range.family === address.family && range.contains(address));
    if (holding.length === 0) return true;
    return holding.some(({ bits }) =>
      blocksOf(String(Cidr.of(address, address.bits - bits))).some((block) => block.node === node),
    );
  };
}
