import { Cidr } from "#base/ip";
import { type FieldFault, forbidden, invalid, required, tooLong } from "#kube/crd";
import { DEFAULT_BLOCK_SIZE_BITS, type ParsedSubnet } from "./blocks.ts";
import { MAX_LABEL_VALUE_LENGTH } from "./keys.ts";
import { PrefixTree } from "./prefix-tree.ts";
import type { AddressPoolSpec, SubnetSet } from "./types.ts";

/** The fields of a pool that validation reads. */
export interface PoolInput {
  readonly metadata: { readonly name?: string };
  /** Absent in an object that was stored without a check of the schema. */
  readonly spec?: AddressPoolSpec | undefined;
}

type PoolWithSpec = PoolInput & { readonly spec: AddressPoolSpec };

/** The other pools of the cluster, for the overlap rule. Without them, the rule is not checked. */
export interface PoolContext {
  readonly others?: Iterable<PoolInput>;
}

/** All faults of a new pool (docs/spec/pod-network.md#2.2); empty when it may be created. */
export function validatePoolCreate(pool: PoolInput, context: PoolContext = {}): FieldFault[] {
  const { spec } = pool;
  if (spec === undefined) return [required("spec", "the pool's subnets")];
  const faults: FieldFault[] = [];
  if ((pool.metadata.name?.length ?? 0) > MAX_LABEL_VALUE_LENGTH) {
    faults.push(tooLong("metadata.name", MAX_LABEL_VALUE_LENGTH));
  }
  const bits = spec.blockSizeBits ?? DEFAULT_BLOCK_SIZE_BITS;
  if (!Number.isInteger(bits) || bits < 0) {
    faults.push(invalid("spec.blockSizeBits", bits, "must be a whole number of at least 0"));
  }
  if (spec.subnets.length === 0) faults.push(required("spec.subnets", "at least one subnet is needed"));
  return [...faults, ...checkEntries({ metadata: pool.metadata, spec }, 0, bits, context)];
}

/**
 * All faults of a change of a pool. Only appended subnets are checked, so that an invalid stored pool can still lose its
 * finalizer.
 */
export function validatePoolUpdate(before: PoolInput, after: PoolInput, context: PoolContext = {}): FieldFault[] {
  const { spec } = after;
  if (spec === undefined) return before.spec === undefined ? [] : [forbidden("spec", "unchangeable")];
  if (before.spec === undefined) return validatePoolCreate(after, context);
  const faults: FieldFault[] = [];
  const bits = spec.blockSizeBits ?? DEFAULT_BLOCK_SIZE_BITS;
  if (bits !== (before.spec.blockSizeBits ?? DEFAULT_BLOCK_SIZE_BITS)) {
    faults.push(forbidden("spec.blockSizeBits", "unchangeable"));
  }
  if (spec.subnets.length < before.spec.subnets.length) {
    faults.push(forbidden("spec.subnets", "unshrinkable"));
  } else {
    for (const [at, old] of before.spec.subnets.entries()) {
      const now = spec.subnets[at];
      if (now?.ipv4 !== old.ipv4 || now?.ipv6 !== old.ipv6) {
        faults.push(forbidden(`spec.subnets[${at}]`, "unchangeable"));
      }
    }
  }
  return [...faults, ...checkEntries({ metadata: after.metadata, spec }, before.spec.subnets.length, bits, context)];
}

/** Most faults of entries that are told: with one the pool is refused. */
const MAX_FAULTS = 50;

/**
 * Checks the entries from `start` on, each one by itself, and against all earlier entries and the other pools. The work grows with the number of subnets, not with
 * its square: who can ask for a review is a stranger.
 */
function checkEntries(pool: PoolWithSpec, start: number, bits: number, context: PoolContext): FieldFault[] {
  const faults: FieldFault[] = [];
  const others = new SubnetTree();
  const names: string[] = [];
  for (const { metadata, spec } of context.others ?? []) {
    if (metadata.name === pool.metadata.name) continue;
    for (const entry of spec?.subnets ?? []) {
      const subnet = tryParse(entry);
      if (subnet !== undefined) others.add(subnet, names.length);
    }
    names.push(metadata.name ?? "");
  }
  const earlier = new SubnetTree();
  const first = pool.spec.subnets[0];
  for (const [at, entry] of pool.spec.subnets.entries()) {
    const field = `spec.subnets[${at}]`;
    const subnet = tryParse(entry);
    if (at >= start) {
      const own = checkSubnet(field, entry, bits);
      faults.push(...own);
      if (first !== undefined && familySet(first) !== familySet(entry) && own.length === 0) {
        faults.push(invalid(field, entry, `must have the same families as spec.subnets[0]: ${familySet(first)}`));
      }
      const [before, other] = subnet === undefined ? [] : [earlier.overlapping(subnet), others.overlapping(subnet)];
      if (before !== undefined) faults.push(invalid(field, entry, `overlaps with spec.subnets[${before}]`));
      if (other !== undefined)
        faults.push(invalid(field, entry, `overlaps with a subnet of AddressPool ${names[other]}`));
      if (faults.length >= MAX_FAULTS) return faults.slice(0, MAX_FAULTS);
    }
    if (subnet !== undefined) earlier.add(subnet, at);
  }
  return faults;
}

/** Subnets of one or both families, by their places in a list. */
class SubnetTree {
  readonly #trees = { ipv4: new PrefixTree(), ipv6: new PrefixTree() };

  overlapping(subnet: ParsedSubnet): number | undefined {
    const places = (["ipv4", "ipv6"] as const).flatMap((family) => {
      const cidr = subnet[family];
      return cidr === undefined ? [] : (this.#trees[family].overlapping(cidr) ?? []);
    });
    return places.length === 0 ? undefined : Math.min(...places);
  }

  add(subnet: ParsedSubnet, place: number): void {
    if (subnet.ipv4 !== undefined) this.#trees.ipv4.add(subnet.ipv4, place);
    if (subnet.ipv6 !== undefined) this.#trees.ipv6.add(subnet.ipv6, place);
  }
}

/** The faults of one entry by itself. */
function checkSubnet(field: string, entry: SubnetSet, bits: number): FieldFault[] {
  if (entry.ipv4 === undefined && entry.ipv6 === undefined) return [required(field, "ipv4, ipv6 or both")];
  const faults: FieldFault[] = [];
  const sizes: number[] = [];
  for (const [name, family] of [
    ["ipv4", 4],
    ["ipv6", 6],
  ] as const) {
    const text = entry[name];
    if (text === undefined) continue;
    const cidr = Cidr.tryParse(text);
    if (cidr === undefined || cidr.family !== family) {
      faults.push(invalid(`${field}.${name}`, text, `must be an IPv${family} CIDR`));
    } else if (cidr.hostBits < bits) {
      faults.push(invalid(`${field}.${name}`, text, `is smaller than a block of 2^${bits} addresses`));
    } else {
      sizes.push(cidr.hostBits);
    }
  }
  if (sizes.length === 2 && sizes[0] !== sizes[1]) {
    faults.push(
      invalid(field, entry, `ipv4 and ipv6 must have the same number of host bits: they have ${sizes.join(" and ")}`),
    );
  }
  return faults;
}

function tryParse(entry: SubnetSet): ParsedSubnet | undefined {
  const one = (text: string | undefined, family: 4 | 6): Cidr | undefined => {
    const cidr = text === undefined ? undefined : Cidr.tryParse(text);
    return cidr?.family === family ? cidr : undefined;
  };
  const subnet = { ipv4: one(entry.ipv4, 4), ipv6: one(entry.ipv6, 6) };
  return subnet.ipv4 === undefined && subnet.ipv6 === undefined ? undefined : subnet;
}

function familySet(entry: SubnetSet): string {
  const has = [entry.ipv4 === undefined ? "" : "ipv4", entry.ipv6 === undefined ? "" : "ipv6"];
  return has.filter((name) => name !== "").join(" and ");
}
