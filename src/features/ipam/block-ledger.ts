import { Cidr, type IpFamily } from "#base/ip";
import type { BlockCidrs } from "#kube/coil";

/** What the ledger keeps of a block. */
export interface LedgerBlock {
  readonly name: string;
  readonly pool: string;
  readonly cidrs: readonly Cidr[];
}

interface Line extends LedgerBlock {
  /** Is being made: whether it exists will be known later. */
  open: boolean;
  /** Epoch of the last change; a list that began before does not judge it. */
  at: number;
}

/**
 * The prefixes of all blocks of all pools, and of those that are being made: no block may overlap another, whatever pools say
 * (docs/spec/pod-network.md#2.2). Pure memory; nothing is awaited between the check and the reservation, so that two pools cannot be given
 * one address at the same time. Bounded by the blocks of the cluster.
 */
export class BlockLedger {
  readonly #lines = new Map<string, Line>();
  /** By family and prefix length, then by base: names. */
  readonly #prefixes = new Map<string, Map<bigint, Set<string>>>();
  #epoch = 0;

  get size(): number {
    return this.#lines.size;
  }

  /** A block of another name that overlaps one of these prefixes, and the prefix of it. */
  overlapping(cidrs: readonly Cidr[], name = ""): { readonly name: string; readonly cidr: Cidr } | undefined {
    for (const cidr of cidrs) {
      for (const other of this.#namesIn(cidr)) {
        const theirs = this.#lines.get(other)?.cidrs.find((one) => one.overlaps(cidr));
        if (other !== name && theirs !== undefined) return { name: other, cidr: theirs };
      }
    }
    return undefined;
  }

  /** Enters a block that is about to be made. {@link BlockLedger.settle} it when the attempt is over. */
  reserve(block: LedgerBlock): void {
    this.#enter(block, true);
  }

  /** The attempt to make a block is over. Whether it is there or not, a list that begins from now on is believed. */
  settle(name: string): void {
    const line = this.#lines.get(name);
    if (line === undefined) return;
    this.#epoch += 1;
    line.open = false;
    line.at = this.#epoch;
  }

  /** Call before a list of blocks is asked for, and hand the result to {@link BlockLedger.replace}. */
  get epoch(): number {
    return this.#epoch;
  }

  /** Takes over a list of the blocks of one pool, or of all. */
  replace(found: readonly LedgerBlock[], options: { readonly since: number; readonly pool?: string }): void {
    const names = new Set(found.map(({ name }) => name));
    for (const line of [...this.#lines.values()]) {
      const judged = options.pool === undefined || line.pool === options.pool;
      if (judged && !line.open && line.at <= options.since && !names.has(line.name)) this.#strike(line);
    }
    for (const block of found) if (this.#lines.get(block.name)?.open !== true) this.#enter(block, false, options.since);
  }

  #enter(block: LedgerBlock, open: boolean, at?: number): void {
    const before = this.#lines.get(block.name);
    if (before !== undefined) this.#strike(before);
    this.#epoch += at === undefined ? 1 : 0;
    this.#lines.set(block.name, { ...block, open, at: at ?? this.#epoch });
    for (const cidr of block.cidrs) {
      const ofLength = this.#prefixes.get(lengthKey(cidr.family, cidr.prefixLength)) ?? new Map<bigint, Set<string>>();
      this.#prefixes.set(lengthKey(cidr.family, cidr.prefixLength), ofLength);
      ofLength.set(cidr.base.value, (ofLength.get(cidr.base.value) ?? new Set()).add(block.name));
    }
  }

  #strike(line: Line): void {
    this.#lines.delete(line.name);
    for (const { family, prefixLength, base } of line.cidrs) {
      const key = lengthKey(family, prefixLength);
      const ofLength = this.#prefixes.get(key);
      const names = ofLength?.get(base.value);
      names?.delete(line.name);
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

/** The names of the smaller prefixes in a larger one: its parts are looked up, or all looked through when that is less. */
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
