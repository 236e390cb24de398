import { Cidr, type IpFamily } from "#base/ip";
import type { BlockCidrs } from "#kube/coil";

/** A block as the index keeps it. */
export interface IndexedBlock {
  readonly name: string;
  readonly pool: string;
  readonly cidrs: readonly Cidr[];
  /** The index of the block within its pool. */
  readonly index: number;
  /** The UID of the BlockRequest that it answers; empty for a block that answers none. */
  readonly request: string;
  /** `undefined` while it is being made, and if the answer to its creation was lost. */
  readonly uid: string | undefined;
}

interface Entry extends Omit<IndexedBlock, "uid"> {
  uid: string | undefined;
  /** True while the block is being made: a later list decides whether it exists. */
  open: boolean;
  /** Epoch of the last change; a list that began before this epoch does not decide whether the block exists. */
  at: number;
}

/**
 * The prefixes of all blocks of all pools, and of those that are being made: no block may overlap another, even if the pools overlap
 * (docs/spec/pod-network.md#2.2). Pure memory; nothing is awaited between the check and the reservation, so that two pools never get the
 * same address at the same time. Bounded by the blocks of the cluster.
 */
export class BlockIndex {
  readonly #entries = new Map<string, Entry>();
  /** Names of blocks, by family and prefix length, then by base. */
  readonly #prefixes = new Map<string, Map<bigint, Set<string>>>();
  /** UID of a BlockRequest → the name of the block that answers it. */
  readonly #byRequest = new Map<string, string>();
  #epoch = 0;

  get size(): number {
    return this.#entries.size;
  }

  /** Finds a block of another name that overlaps one of these prefixes; returns its name and the prefix. */
  overlapping(cidrs: readonly Cidr[], name = ""): { readonly name: string; readonly cidr: Cidr } | undefined {
    for (const cidr of cidrs) {
      for (const other of this.#namesIn(cidr)) {
        const theirs = this.#entries.get(other)?.cidrs.find((one) => one.overlaps(cidr));
        if (other !== name && theirs !== undefined) return { name: other, cidr: theirs };
      }
    }
    return undefined;
  }

  /** The name of the block that answers a BlockRequest. A block whose creation is not finished does not count. */
  madeFor(request: string): string | undefined {
    const name = this.#byRequest.get(request);
    return name === undefined || this.#entries.get(name)?.open !== false ? undefined : name;
  }

  /** The indexes of a pool's blocks. */
  indexesOf(pool: string): number[] {
    const indexes: number[] = [];
    for (const entry of this.#entries.values()) if (entry.pool === pool) indexes.push(entry.index);
    return indexes;
  }

  /** Removes a deleted block. Returns false if a block of this name has another UID, or a UID that is not known. */
  remove(name: string, uid: string): boolean {
    const entry = this.#entries.get(name);
    if (entry === undefined) return true;
    if (entry.uid !== uid) return false;
    this.#remove(entry);
    return true;
  }

  /** Adds a block before it is created. Call {@link BlockIndex.settle} after the attempt. */
  reserve(block: IndexedBlock): void {
    this.#put(block, true);
  }

  /**
   * Call this after the attempt to create a block; `uid` is set if it was created. A list that begins after this call decides whether the
   * block exists.
   */
  settle(name: string, uid?: string): void {
    const entry = this.#entries.get(name);
    if (entry === undefined) return;
    this.#epoch += 1;
    entry.open = false;
    entry.at = this.#epoch;
    if (uid !== undefined) entry.uid = uid;
  }

  /** The current epoch. Read it before you request a list of blocks, and pass it to {@link BlockIndex.replace}. */
  get epoch(): number {
    return this.#epoch;
  }

  /** Replaces the known blocks of one pool, or of all pools, by a list. */
  replace(found: readonly IndexedBlock[], options: { readonly since: number; readonly pool?: string }): void {
    const names = new Set(found.map(({ name }) => name));
    for (const entry of [...this.#entries.values()]) {
      const decided = options.pool === undefined || entry.pool === options.pool;
      if (decided && !entry.open && entry.at <= options.since && !names.has(entry.name)) this.#remove(entry);
    }
    for (const block of found) {
      const known = this.#entries.get(block.name);
      // A change that happened after the list began is newer than the list.
      if (known !== undefined && (known.open || known.at > options.since)) continue;
      this.#put(block, false, options.since);
    }
  }

  #put(block: IndexedBlock, open: boolean, at?: number): void {
    const before = this.#entries.get(block.name);
    if (before !== undefined) this.#remove(before);
    this.#epoch += at === undefined ? 1 : 0;
    this.#entries.set(block.name, { ...block, open, at: at ?? this.#epoch });
    if (block.request !== "") this.#byRequest.set(block.request, block.name);
    for (const cidr of block.cidrs) {
      const ofLength = this.#prefixes.get(lengthKey(cidr.family, cidr.prefixLength)) ?? new Map<bigint, Set<string>>();
      this.#prefixes.set(lengthKey(cidr.family, cidr.prefixLength), ofLength);
      ofLength.set(cidr.base.value, (ofLength.get(cidr.base.value) ?? new Set()).add(block.name));
    }
  }

  #remove(entry: Entry): void {
    this.#entries.delete(entry.name);
    if (this.#byRequest.get(entry.request) === entry.name) this.#byRequest.delete(entry.request);
    for (const { family, prefixLength, base } of entry.cidrs) {
      const key = lengthKey(family, prefixLength);
      const ofLength = this.#prefixes.get(key);
      const names = ofLength?.get(base.value);
      names?.delete(entry.name);
      if (names?.size === 0) ofLength?.delete(base.value);
      if (ofLength?.size === 0) this.#prefixes.delete(key);
    }
  }

  /** Names of blocks that share addresses with a prefix. */
  *#namesIn(cidr: Cidr): Generator<string> {
    for (const [key, ofLength] of this.#prefixes) {
      const [family, length] = key.split("/").map(Number);
      if (family !== cidr.family || length === undefined) continue;
      if (length <= cidr.prefixLength) yield* ofLength.get(Cidr.of(cidr.base, length).base.value) ?? [];
      else yield* within(cidr, length, ofLength);
    }
  }
}

/**
 * The names of the smaller prefixes in a larger one: either each possible part is looked up, or all names are searched, whichever takes
 * fewer steps.
 */
function* within(cidr: Cidr, length: number, ofLength: ReadonlyMap<bigint, Set<string>>): Generator<string> {
  const bits = BigInt(cidr.base.bits - length);
  const parts = 1n << BigInt(length - cidr.prefixLength);
  if (parts <= BigInt(ofLength.size)) {
    for (let part = 0n; part < parts; part += 1n) yield* ofLength.get(cidr.base.value + (part << bits)) ?? [];
    return;
  }
  for (const [base, names] of ofLength) if (base >= cidr.base.value && base <= cidr.last.value) yield* names;
}

/** The prefixes of a block, of its families. */
export function prefixesOf({ ipv4, ipv6 }: BlockCidrs): Cidr[] {
  return [ipv4, ipv6].filter((cidr) => cidr !== undefined);
}

function lengthKey(family: IpFamily, length: number): string {
  return `${family}/${length}`;
}
