import { setImmediate } from "node:timers/promises";
import { type AbortOptions, sleep } from "#base/async";
import { type Clock, systemClock } from "#base/clock";
import type { Cidr } from "#base/ip";
import type { Nft, NftTransaction } from "#kernel/nft";
import {
  type ByteString,
  ElementBatch,
  type ElementTable,
  type NftElements,
  type RawElement,
} from "#kernel/nft-elements";
import {
  changeFrontEnd,
  type Dirty,
  type HeldFrontEnd,
  type HeldTable,
  type Phases,
  readHeld,
  type WantedTable,
} from "../plan/index.ts";
import { affinityChain, type RuleOptions, SETS, setSpecs } from "../rules/index.ts";
import { type AffinityLoss, affinityLoss, forgetClients } from "./affinity.ts";
import type { Ledger } from "./ledger.ts";
import {
  addChains,
  affinitySets,
  COMPLETE_CHAIN,
  emptyChains,
  fillCompiled,
  fillSlotMaps,
  LAYOUT_CHAIN,
  markComplete,
  removeTable,
  renewPrinted,
  replaceTable,
  setServiceCidrs,
  shapesOf,
} from "./table-rules.ts";

/** Batches are committed at this size: far below what netlink takes, and a few milliseconds of encoding. */
const BATCH_BYTES = 2 << 20;
/** Work goes on for so long before the event loop has its turn, milliseconds (spec service-proxy 1.1). */
const SLICE_MS = 8;
/** Packets that saw an old verdict are through after this, milliseconds (spec service-proxy 2.8). */
const SETTLE_MS = 10;

export interface DataPlaneDeps {
  readonly nft: Nft;
  readonly elements: NftElements;
  readonly ledger: Ledger;
  readonly clock?: Clock;
}

/** All that one family's table shall hold. */
export interface Desired {
  readonly services: WantedTable;
  /** Keys of `nodeport-ips`. */
  readonly nodePortIPs: ReadonlySet<ByteString>;
  readonly serviceCIDRs: readonly Cidr[];
}

/** What a sync did. */
export interface SyncReport {
  readonly kind: "full" | "partial";
  /** Elements added and deleted. */
  readonly changes: number;
  readonly transactions: number;
  readonly bytes: number;
}

interface Held {
  readonly frontEnds: Map<string, HeldFrontEnd>;
  readonly chains: Set<string>;
  readonly sets: Map<string, Set<ByteString>>;
  affinityTimeouts: readonly number[];
  serviceCIDRs: string;
  /** Found in the kernel and wanted by nobody. */
  strays: HeldTable["strays"];
}

/** Sets whose elements are keys alone, wanted as a whole. */
const PLAIN_SETS = [SETS.clusterIps, SETS.hairpin, SETS.nodePortIps] as const;

/**
 * One family's table: makes it hold what is wanted, with as few changes as can be, and so that no new connection fails meanwhile. Knows
 * what the kernel holds from its own writes; after a failure it lists the kernel again. One sync at a time.
 */
export class DataPlane {
  readonly #deps: DataPlaneDeps;
  readonly #clock: Clock;
  #options: RuleOptions;
  readonly table: ElementTable & { readonly family: "ip" | "ip6" };
  /** `undefined`: not known, to be listed. */
  #held: Held | undefined;

  constructor(deps: DataPlaneDeps, options: RuleOptions & { readonly tableName: string }) {
    this.#deps = deps;
    this.#clock = deps.clock ?? systemClock;
    this.#options = options;
    this.table = { family: options.family === 4 ? "ip" : "ip6", name: options.tableName };
  }

  /** The front ends that the kernel holds, as far as is known. */
  get frontEnds(): ReadonlyMap<string, HeldFrontEnd> {
    return this.#held?.frontEnds ?? new Map();
  }

  /** Other rules from now on: the next sync writes them, in one transaction. */
  setRules(options: RuleOptions): void {
    this.#options = options;
    this.distrust();
  }

  /** The next sync lists the kernel and repairs what differs. */
  distrust(): void {
    this.#held = undefined;
  }

  /** Whether a table of this layout, filled to the end by an earlier run, is there (spec service-proxy 1.6). */
  hasCompleteTable(): boolean {
    const chains = this.#deps.elements.names(this.table)?.chains ?? [];
    return chains.includes(LAYOUT_CHAIN) && chains.includes(COMPLETE_CHAIN);
  }

  /** Whether the table or one of its chains or sets is gone: cheap, no element is read. False while nothing is known of it. */
  isDamaged(): boolean {
    if (this.#held === undefined) return false;
    const names = this.#deps.elements.names(this.table);
    const chains = new Set(names?.chains);
    return (
      [...this.#held.chains].some((name) => !chains.has(name)) ||
      [...setSpecs(this.#options.family).keys()].some((name) => names?.sets.includes(name) !== true)
    );
  }

  /**
   * Makes the table hold what is wanted. `full`: compares everything, else what `services` says is dirty. Rejects with `NftError` or
   * `KernelError`; what the kernel holds is then listed by the next sync.
   */
  async sync(desired: Desired, options: AbortOptions & { readonly full?: boolean } = {}): Promise<SyncReport> {
    const tally = new Tally();
    const isKnown = this.#held !== undefined;
    const isFull = options.full === true || !isKnown;
    const dirty = desired.services.takeDirty();
    try {
      const held = this.#held ?? (await this.#adopt(tally, options));
      this.#held = held;
      await this.#removeStrays(held, tally, options);
      const ids = isFull ? new Set([...held.frontEnds.keys(), ...idsOf(desired.services)]) : dirty.frontEnds;
      const sets = this.#changeSets(held, desired, isFull ? undefined : dirty);
      await this.#syncServiceCidrs(held, desired.serviceCIDRs, tally);
      await this.#commit(sets.add, tally, options);
      await this.#syncFrontEnds(held, desired.services, ids, tally, options);
      await this.#commit(sets.remove, tally, options);
      for (const [name, keys] of sets.next) held.sets.set(name, keys);
      if (!held.chains.has(COMPLETE_CHAIN)) await this.#complete(held, tally);
      return tally.report(isFull ? "full" : "partial");
    } catch (error) {
      this.distrust();
      throw error;
    }
  }

  /** Deletes the table; false when there was none. */
  async remove(): Promise<boolean> {
    if (this.#deps.elements.names(this.table) === undefined) return false;
    await this.#run(removeTable(this.table), new Tally());
    this.distrust();
    return true;
  }

  /** Takes over what an earlier run, or somebody's hands, left; makes the table where there is none of ours. */
  async #adopt(tally: Tally, options: AbortOptions): Promise<Held> {
    const names = this.#deps.elements.names(this.table);
    if (names?.chains.includes(LAYOUT_CHAIN) !== true) {
      await this.#run(replaceTable(this.table, this.#options), tally);
      await this.#commitFilled((batch) => fillSlotMaps(batch, this.#options), tally, options);
      return emptyHeld(new Set(this.#deps.elements.names(this.table)?.chains));
    }
    const affinityTimeouts = timeoutsOf(names.sets);
    await this.#commitFilled((batch) => fillSlotMaps(batch, this.#options), tally, options);
    await this.#run(renewPrinted(this.table, this.#options, { chains: names.chains, affinityTimeouts }), tally);
    const compiled = [affinityChain(affinityTimeouts), ...shapesOf(names.chains, this.#options)];
    await this.#commitFilled((batch) => fillCompiled(batch, compiled, this.#options), tally, options);
    const listing = this.#listElements();
    const { frontEnds, strays } = readHeld(listing);
    return {
      frontEnds: new Map(frontEnds),
      chains: new Set(this.#deps.elements.names(this.table)?.chains),
      sets: new Map(PLAIN_SETS.map((name) => [name, new Set((listing.get(name) ?? []).map(({ key }) => key))])),
      affinityTimeouts,
      serviceCIDRs: "unknown",
      strays,
    };
  }

  #listElements(): ReadonlyMap<string, readonly RawElement[]> {
    const { elements } = this.#deps;
    const listing = new Map<string, readonly RawElement[]>();
    for (const name of elements.names(this.table)?.sets ?? []) {
      // Clients that are remembered are packets' business; the ranges of Services are replaced as a whole. Others' anonymous sets count not.
      const isOurs = name !== SETS.affinity && name !== SETS.serviceCidrs && !name.startsWith("__");
      if (isOurs) listing.set(name, elements.list(this.table, name));
    }
    return listing;
  }

  async #removeStrays(held: Held, tally: Tally, options: AbortOptions): Promise<void> {
    if (held.strays.length === 0) return;
    const batch = this.#batch();
    for (const { set, element } of held.strays) batch.delete(set, element.key, element.keyEnd);
    await this.#commit(batch, tally, options);
    held.strays = [];
  }

  /** What the plain sets gain before the front ends change, and lose after it. */
  #changeSets(
    held: Held,
    desired: Desired,
    dirty: Dirty | undefined,
  ): {
    readonly add: ElementBatch;
    readonly remove: ElementBatch;
    readonly next: ReadonlyMap<string, Set<ByteString>>;
  } {
    const wanted = {
      [SETS.clusterIps]: [desired.services.clusterIPs, dirty?.clusterIPs],
      [SETS.hairpin]: [desired.services.hairpins, dirty?.hairpins],
      [SETS.nodePortIps]: [desired.nodePortIPs, undefined],
    } as const;
    const [add, remove] = [this.#batch(), this.#batch()];
    const next = new Map<string, Set<ByteString>>();
    for (const name of PLAIN_SETS) {
      const [want, touched] = wanted[name];
      // Copied only where all of it is looked at anyway: a partial sync stays as small as its change.
      const known = held.sets.get(name) ?? new Set<ByteString>();
      const result = touched === undefined ? new Set(known) : known;
      for (const key of touched ?? union(known, want)) {
        if (want.has(key) && !result.has(key)) {
          add.add(name, key);
          result.add(key);
        } else if (!want.has(key) && result.delete(key)) {
          remove.delete(name, key);
        }
      }
      next.set(name, result);
    }
    return { add, remove, next };
  }

  async #syncServiceCidrs(held: Held, serviceCIDRs: readonly Cidr[], tally: Tally): Promise<void> {
    const cidrs = serviceCIDRs.map(String).sort();
    if (cidrs.join(",") === held.serviceCIDRs) return;
    await this.#run(setServiceCidrs(this.table, cidrs), tally);
    held.serviceCIDRs = cidrs.join(",");
  }

  /** In groups, each of which is filled, turned and forgotten; what is no longer led to is cleared at the end. */
  async #syncFrontEnds(
    held: Held,
    services: WantedTable,
    ids: ReadonlySet<string>,
    tally: Tally,
    options: AbortOptions,
  ): Promise<void> {
    const clears: ElementBatch[] = [];
    const losses: AffinityLoss[] = [];
    let group = this.#phases();
    let updates: [string, HeldFrontEnd | undefined][] = [];
    const finish = async (): Promise<void> => {
      await this.#prepare(held, updates, tally, options);
      await this.#commit(group.fill, tally, options);
      await this.#commit(group.turn, tally, options);
      for (const [id, frontEnd] of updates) {
        if (frontEnd === undefined) held.frontEnds.delete(id);
        else held.frontEnds.set(id, frontEnd);
      }
      if (!group.clear.isEmpty) clears.push(group.clear);
      group = this.#phases();
      updates = [];
    };
    let sliceEnd = this.#clock.monotonic() + SLICE_MS;
    for (const id of ids) {
      const before = held.frontEnds.get(id);
      const after = changeFrontEnd(before, services.frontEnd(id), group);
      updates.push([id, after]);
      const loss = affinityLoss(before, after);
      if (loss !== undefined) losses.push(loss);
      if (group.fill.byteLength + group.turn.byteLength > BATCH_BYTES) await finish();
      if (this.#clock.monotonic() < sliceEnd) continue;
      await setImmediate();
      options.signal?.throwIfAborted();
      sliceEnd = this.#clock.monotonic() + SLICE_MS;
    }
    await finish();
    await forgetClients({ elements: this.#deps.elements, ledger: this.#deps.ledger }, this.table, losses, options);
    if (clears.length === 0) return;
    await sleep(SETTLE_MS, { clock: this.#clock, signal: options.signal });
    for (const batch of clears) await this.#commit(batch, tally, options);
  }

  /** Chains and affinity sets that the front ends are about to lead to. */
  async #prepare(
    held: Held,
    updates: readonly (readonly [string, HeldFrontEnd | undefined])[],
    tally: Tally,
    options: AbortOptions,
  ): Promise<void> {
    const chains = new Set<string>();
    const timeouts = new Set(held.affinityTimeouts);
    for (const [, frontEnd] of updates) {
      for (const verdict of [frontEnd?.verdict, frontEnd?.short]) {
        if (verdict !== undefined && "chain" in verdict && !held.chains.has(verdict.chain)) chains.add(verdict.chain);
      }
      if ((frontEnd?.affinitySeconds ?? 0) > 0) timeouts.add(frontEnd?.affinitySeconds ?? 0);
    }
    if (chains.size > 0) await this.#addShapes(held, chains, tally, options);
    if (timeouts.size === held.affinityTimeouts.length) return;
    const sorted = [...timeouts].sort((a, b) => a - b);
    await this.#run(affinitySets(this.table, sorted, this.#options), tally);
    await this.#commitFilled((batch) => fillCompiled(batch, [affinityChain(sorted)], this.#options), tally, options);
    held.affinityTimeouts = sorted;
  }

  /** In this order: a chain that exists is whole before anything leads to it. */
  async #addShapes(held: Held, names: ReadonlySet<string>, tally: Tally, options: AbortOptions): Promise<void> {
    const chains = shapesOf(names, this.#options, held.chains);
    await this.#run(emptyChains(this.table, chains), tally);
    await this.#commitFilled((batch) => fillCompiled(batch, chains, this.#options), tally, options);
    await this.#run(addChains(this.table, chains, this.#options), tally);
    for (const { name } of chains) held.chains.add(name);
  }

  async #complete(held: Held, tally: Tally): Promise<void> {
    await this.#run(markComplete(this.table), tally);
    held.chains.add(COMPLETE_CHAIN);
  }

  #phases(): Phases {
    return { fill: this.#batch(), turn: this.#batch(), clear: this.#batch() };
  }

  #batch(): ElementBatch {
    return new ElementBatch(this.table, { record: this.#deps.elements.wantsRecords });
  }

  /** Maps and rules, which are no elements. */
  async #commitFilled(fill: (batch: ElementBatch) => void, tally: Tally, options: AbortOptions): Promise<void> {
    const batch = this.#batch();
    fill(batch);
    await this.#commit(batch, tally, options, 0);
  }

  async #commit(batch: ElementBatch, tally: Tally, options: AbortOptions, changes = batch.count): Promise<void> {
    if (batch.isEmpty) return;
    await this.#deps.ledger.transact(() => this.#deps.elements.commit(batch, options));
    tally.count(changes, batch.byteLength);
  }

  async #run(transaction: NftTransaction, tally: Tally): Promise<void> {
    if (transaction.isEmpty) return;
    await this.#deps.ledger.transact(() => this.#deps.nft.run(transaction));
    tally.count(0, 0);
  }
}

class Tally {
  #changes = 0;
  #transactions = 0;
  #bytes = 0;

  count(changes: number, bytes: number): void {
    this.#changes += changes;
    this.#bytes += bytes;
    this.#transactions += 1;
  }

  report(kind: SyncReport["kind"]): SyncReport {
    return { kind, changes: this.#changes, transactions: this.#transactions, bytes: this.#bytes };
  }
}

function emptyHeld(chains: Set<string>): Held {
  const sets = new Map(PLAIN_SETS.map((name) => [name, new Set<ByteString>()]));
  return { frontEnds: new Map(), chains, sets, affinityTimeouts: [], serviceCIDRs: "", strays: [] };
}

function* idsOf(services: WantedTable): Generator<string> {
  for (const [id] of services.frontEnds()) yield id;
}

function* union<T>(a: ReadonlySet<T>, b: ReadonlySet<T>): Generator<T> {
  yield* a;
  for (const one of b) if (!a.has(one)) yield one;
}

function timeoutsOf(sets: readonly string[]): number[] {
  const found = sets.flatMap((name) => /^affinity-(\d{1,5})$/.exec(name)?.[1] ?? []);
  return found.map(Number).sort((a, b) => a - b);
}
