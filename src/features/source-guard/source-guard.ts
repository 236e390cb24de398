import { IpAddress } from "#base/ip";
import { isKernelError } from "#kernel/errors";
import { type Nft, NftError, type NftTable } from "#kernel/nft";
import { ElementBatch, type ElementTable, type NftElements, type RawElement } from "#kernel/nft-elements";
import { type ActualElements, type GuardChange, planElements, planLink } from "./diff.ts";
import { elementsOf, FILLED, ifindexOf, partsOf } from "./elements.ts";
import { GuardError } from "./errors.ts";
import {
  familyOfReason,
  GUARD_FAMILIES,
  GUARD_TABLE,
  type GuardFamily,
  isGuardTable,
  planTables,
  reasonChain,
  replaceTable,
  type TablePlan,
} from "./rules.ts";
import { GUARD_REASONS, type GuardedLink, type GuardMode, type GuardReason, type Refusal } from "./types.ts";

/** Sets of the first refused packets: key is a link and value an address, or the other way round. */
const FIRST: readonly (readonly [table: GuardFamily, set: string, reason: GuardReason])[] = [
  ["inet", "first-source4", "source"],
  ["inet", "first-source6", "source"],
  ["inet", "first-link-local", "link-local"],
  ["arp", "first-arp", "arp"],
  ["inet", "first-outside4", "outside"],
  ["inet", "first-outside6", "outside"],
];
/** Sets that packets fill, whose keys begin with a link. */
const LEARNED: readonly (readonly [table: GuardFamily, set: string])[] = [
  ["inet", "link-local"],
  ["inet", "budget"],
  ["inet", "first-source4"],
  ["inet", "first-source6"],
  ["inet", "first-link-local"],
  ["arp", "first-arp"],
];

/** The part of the kernel that the guard writes. */
export interface GuardKernel {
  readonly nft: Nft;
  readonly elements: NftElements;
}

/**
 * Lets packets of guarded links in only with the sources of their links (docs/spec/pod-network.md#5.7): two nftables tables with a constant number of rules, and
 * some elements for each link. The tables stay when the process ends; the next one adopts them. All work is synchronous. Holds one entry for each guarded
 * link.
 */
export class SourceGuard {
  readonly mode: GuardMode;
  readonly #kernel: GuardKernel;
  readonly #plan: Readonly<Record<GuardFamily, TablePlan>>;
  readonly #links = new Map<number, GuardedLink>();
  /** Each table as it was after the last sync, without its elements. */
  #structure: string | undefined;
  #generation: number | undefined;

  /** The opener of `kernel` disposes it. */
  constructor(kernel: GuardKernel, options: { readonly mode: GuardMode }) {
    this.mode = options.mode;
    this.#kernel = kernel;
    this.#plan = planTables(options.mode);
  }

  /** True once the kernel has the tables. Until then {@link SourceGuard.attach} writes nothing. */
  get isOn(): boolean {
    return this.#structure !== undefined;
  }

  /** Guards links from their first packet: call it before a link is up. Replaces what a link might use before. Throws {@link GuardError}. */
  attach(...links: readonly GuardedLink[]): void {
    const changes: GuardChange[] = [];
    let isUnknown = false;
    for (const link of links) {
      const before = this.#links.get(link.ifindex);
      this.#links.set(link.ifindex, link);
      isUnknown ||= before !== undefined && before.extra === undefined;
      changes.push(...planLink(before, link, this.#others(link.ifindex)));
    }
    if (!this.isOn) return;
    // What an earlier process let a link use is not known here: a sync compares it.
    if (isUnknown) this.sync([...this.#links.values()]);
    else this.#change(changes, `guard links ${links.map(({ ifindex }) => ifindex).join(", ")}`);
  }

  /** Call it when the link is gone. Does nothing for a link that is not guarded. Throws {@link GuardError}. */
  detach(ifindex: number): void {
    const before = this.#links.get(ifindex);
    if (before === undefined) return;
    this.#links.delete(ifindex);
    if (this.isOn) this.#change(planLink(before, undefined, this.#others(ifindex)), `release link ${ifindex}`);
  }

  /**
   * Makes the tables what they are to be for these links, and no others; elements of links in `keep` stay as they are. Returns the number of changes: 0 if
   * nothing differed. Throws {@link GuardError}.
   */
  sync(links: readonly GuardedLink[], { keep }: { readonly keep?: ReadonlySet<number> } = {}): number {
    const kept = [...this.#links.values()].filter(({ ifindex }) => keep?.has(ifindex) === true);
    this.#links.clear();
    for (const link of [...kept, ...links]) this.#links.set(link.ifindex, link);
    try {
      const replaced = this.#isWhole() ? 0 : this.#replace();
      const changes = planElements([...this.#links.values()], this.#read(), keep);
      this.#commit(changes);
      const forgotten = this.#forget(keep ?? new Set());
      this.#structure = this.#structureNow();
      this.#generation = this.#kernel.elements.generation();
      return replaced + changes.length + forgotten;
    } catch (error) {
      throw asGuardError(error, "write the source guard's tables", this.isOn ? "refused" : "unavailable");
    }
  }

  /** True if another program has removed or changed a table since the last sync. Cheap if nothing has changed nftables. Throws `KernelError`. */
  isDamaged(): boolean {
    if (this.#structure === undefined) return false;
    const generation = this.#kernel.elements.generation();
    if (generation === this.#generation) return false;
    const isSame = this.#structureNow() === this.#structure;
    if (isSame) this.#generation = generation;
    return !isSame;
  }

  /** The first refused packets of each link, since the link was guarded. Throws `KernelError`. */
  refusals(): Refusal[] {
    return readRefusals(this.#kernel.elements);
  }

  /** Packets that were refused since the tables were made, by reason. Throws `NftError`. */
  counts(): Readonly<Record<GuardReason, number>> {
    const countOf = (reason: GuardReason): number =>
      this.#kernel.nft
        .listCounters(tableOf(familyOfReason(reason)), reasonChain(reason))
        .reduce((sum, { packets }) => sum + packets, 0);
    const counts = GUARD_REASONS.map((reason) => [reason, this.isOn ? countOf(reason) : 0] as const);
    return Object.fromEntries(counts) as Record<GuardReason, number>;
  }

  /** The links whose elements in the kernel are not what they are to be. Changes nothing. Throws `KernelError`. */
  differing(links: readonly GuardedLink[]): number[] {
    if (guardTables(this.#kernel.elements).length < GUARD_FAMILIES.length) return links.map(({ ifindex }) => ifindex);
    const changes = planElements(links, this.#read());
    const found = new Set(changes.map(({ set, key }) => ifindexOf(set, key)));
    return links.map(({ ifindex }) => ifindex).filter((ifindex) => found.has(ifindex));
  }

  #others(ifindex: number): GuardedLink[] {
    return [...this.#links.values()].filter((link) => link.ifindex !== ifindex);
  }

  /** Writes changes; if an object is missing there, another program has removed it, and the whole is compared. */
  #change(changes: readonly GuardChange[], what: string): void {
    try {
      this.#commit(changes);
    } catch (error) {
      if (isKernelError(error, "not-found", "already-exists")) this.sync([...this.#links.values()]);
      else throw asGuardError(error, what, "refused");
    }
  }

  /** Writes changes of both tables in one transaction. */
  #commit(changes: readonly GuardChange[]): void {
    const [first] = changes;
    if (first === undefined) return;
    const { elements } = this.#kernel;
    const batch = new ElementBatch(tableOf(first.table), { record: elements.wantsRecords });
    for (const { op, table, set, key, keyEnd } of changes) {
      if (batch.table.family !== table) batch.inTable(tableOf(table));
      if (op === "add") batch.add(set, key, undefined, undefined, keyEnd);
      else batch.delete(set, key, keyEnd);
    }
    elements.commitNow(batch);
  }

  #read(): ActualElements {
    const read = (family: GuardFamily): Map<string, readonly RawElement[]> =>
      new Map(FILLED[family].map((set) => [set, this.#kernel.elements.list(tableOf(family), set)] as const));
    return { inet: read("inet"), arp: read("arp") };
  }

  /** Returns true if both tables have the rules of the plan, by the name of the seal, and those of the last sync. */
  #isWhole(): boolean {
    if (this.#structure !== undefined) return this.#structureNow() === this.#structure;
    return GUARD_FAMILIES.every((family) => {
      const { sets, chains } = this.#plan[family];
      const names = this.#kernel.elements.names(tableOf(family));
      const rules = chains.reduce((sum, one) => sum + one.rules.length, 0);
      return (
        names !== undefined &&
        Object.keys(sets).every((name) => names.sets.includes(name)) &&
        chains.every(({ name }) => names.chains.includes(name)) &&
        names.chains.length === chains.length &&
        (this.#kernel.elements.ruleHandles(tableOf(family)).length === rules || this.#kernel.elements.wantsRecords)
      );
    });
  }

  /** Makes both tables anew with the elements of all links, each in one transaction, so that no packet finds half of it. Returns 1. */
  #replace(): number {
    const extras = this.#readExtras();
    for (const family of GUARD_FAMILIES) {
      const tx = replaceTable(tableOf(family), this.#plan[family]);
      const bySet = new Map<string, string[][]>();
      for (const link of this.#links.values())
        for (const element of elementsOf(link))
          if (element.table === family) bySet.set(element.set, [...(bySet.get(element.set) ?? []), partsOf(element)]);
      for (const [set, parts] of bySet) tx.elements(set, distinct(parts));
      this.#kernel.nft.run(tx);
    }
    this.#commit(extras);
    return 1;
  }

  /** Reads from the tables that are about to be replaced the sources of links whose extra sources are not known, and the links that these tables judge. */
  #readExtras(): GuardChange[] {
    const unknown = [...this.#links.values()].filter(({ extra }) => extra === undefined);
    if (unknown.length === 0) return [];
    const indexes = new Set(unknown.map(({ ifindex }) => ifindex));
    const { elements } = this.#kernel;
    return GUARD_FAMILIES.flatMap((table) => {
      if (!isGuardTable(elements.names(tableOf(table)))) return [];
      const there = new Set(elements.names(tableOf(table))?.sets);
      return FILLED[table]
        .filter((set) => there.has(set) && !set.startsWith("own"))
        .flatMap((set) =>
          elements
            .list(tableOf(table), set)
            .filter(({ key }) => indexes.has(ifindexOf(set, key) ?? -1))
            .map(
              ({ key, keyEnd }): GuardChange => ({
                op: "add",
                table,
                set,
                key,
                ...(keyEnd === undefined ? {} : { keyEnd }),
              }),
            ),
        );
    });
  }

  /** Removes what packets of links that are gone have left. Returns the number of elements. */
  #forget(keep: ReadonlySet<number>): number {
    const { elements } = this.#kernel;
    const stale = LEARNED.flatMap(([table, set]) =>
      elements
        .list(tableOf(table), set)
        .filter(({ key }) => {
          const ifindex = ifindexOf(set, key) ?? -1;
          return !this.#links.has(ifindex) && !keep.has(ifindex);
        })
        .map(({ key }): GuardChange => ({ op: "delete", table, set, key })),
    );
    const own = new Set([...this.#links.values()].flatMap(({ addresses }) => addresses.map(String)));
    const outside = FIRST.filter(([, , reason]) => reason === "outside").flatMap(([table, set]) =>
      elements
        .list(tableOf(table), set)
        .filter(({ key }) => !own.has(String(IpAddress.fromBytes(Buffer.from(key, "latin1")))))
        .map(({ key }): GuardChange => ({ op: "delete", table, set, key })),
    );
    this.#commit([...stale, ...outside]);
    return stale.length + outside.length;
  }

  #structureNow(): string {
    return GUARD_FAMILIES.flatMap((family) => this.#kernel.elements.structure(tableOf(family))).join("\n");
  }
}

/** Families of the guard's tables that the kernel has. Throws `KernelError`. */
export function guardTables(elements: Pick<NftElements, "names">): GuardFamily[] {
  return GUARD_FAMILIES.filter((family) => isGuardTable(elements.names(tableOf(family))));
}

/** Removes the guard's tables, if there are any. Returns their number. Throws `KernelError` and `NftError`. */
export function removeGuard({ nft, elements }: GuardKernel): number {
  const there = guardTables(elements);
  for (const family of there) nft.run([{ op: "delete", kind: "table", table: tableOf(family) }]);
  return there.length;
}

/** The first refused packets by the kernel's tables; empty if there are none. Throws `KernelError`. */
export function readRefusals(elements: Pick<NftElements, "names" | "list">): Refusal[] {
  const there = new Set(guardTables(elements));
  return FIRST.filter(([table]) => there.has(table)).flatMap(([table, set, reason]) =>
    elements.list(tableOf(table), set).flatMap(({ key, value }) => {
      if (typeof value !== "string") return [];
      const [link, address] = reason === "outside" ? [value, key] : [key, value];
      const source = IpAddress.fromBytes(Buffer.from(address, "latin1"));
      return [{ reason, ifindex: Buffer.from(link, "latin1").readUInt32LE(), source }];
    }),
  );
}

function tableOf(family: GuardFamily): NftTable & ElementTable {
  return { family, name: GUARD_TABLE };
}

function distinct(parts: readonly (readonly string[])[]): { readonly key: readonly string[] }[] {
  return [...new Map(parts.map((key) => [key.join(" "), { key }] as const)).values()];
}

function asGuardError(error: unknown, what: string, code: "unavailable" | "refused"): unknown {
  if (!(error instanceof NftError) && !isKernelError(error)) return error;
  return new GuardError(code, `Cannot ${what}: ${error.message}`, { cause: error });
}
