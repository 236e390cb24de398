import type { AbortOptions } from "#base/async";
import type { Cidr } from "#base/ip";
import { isKernelError } from "#kernel/errors";
import { NftError } from "#kernel/nft";
import type { ElementTable } from "#kernel/nft-elements";
import {
  type ChangedKeys,
  type FrontEndKey,
  type ObservedFrontEnd,
  type TableCounts,
  type WantedTable,
  withoutNested,
} from "../plan/index.ts";
import { AFFINITY_ENTRIES, type RuleOptions, SETS, setSpecs } from "../rules/index.ts";
import type { AffinityLoss } from "./affinity.ts";
import { type TrimmedService, trimAffinity } from "./affinity-shares.ts";
import { DataPlaneError } from "./errors.ts";
import { syncFrontEnds } from "./front-ends.ts";
import { adopt, type ObservedTable, rulesOf, stateOf, type TableState } from "./observed-table.ts";
import { changeSets, type Requested } from "./plain-sets.ts";
import { RemovedFrontEnds } from "./removed-front-ends.ts";
import { COMPLETE_CHAIN, hookTable, isSeal, removeTable, sealOf, sealTable, setServiceCidrs } from "./table-rules.ts";
import type { DataPlaneDeps, SyncReport, TableOptions, WantedState } from "./types.ts";
import { TableWriter } from "./writer.ts";

/** After this number of refused attempts to adopt a table, the table counts as another program's and is replaced. */
const MAX_REFUSALS = 2;

/**
 * One nftables table. Writes the difference between the kernel and the wanted state, with as few elements as possible and in an order in
 * which no new connection fails. A new table is filled before packets pass through it. This class knows the kernel's state from its own
 * writes; after a failure it lists the kernel.
 */
export class ServiceTable {
  readonly table: ElementTable & { readonly family: "ip" | "ip6" };
  readonly #deps: DataPlaneDeps;
  #options: TableOptions;
  /** The kernel's state. `undefined`: not known; the next sync lists it. */
  #observed: ObservedTable | undefined;
  #requested: Requested = {
    frontEnds: new Set(),
    clusterIPs: new Set(),
    hairpinEndpoints: new Set(),
    nodePortIPs: new Set(),
  };
  /** See `FrontEndWork`. */
  readonly #losses = new Map<string, AffinityLoss>();
  readonly #removed = new RemovedFrontEnds();
  /** Number of consecutive attempts to adopt the table that the kernel refused. */
  #refusals = 0;
  #isSyncing = false;
  /** Rules that were set during a sync, which goes on with those that it began with: its seal must be that of what it has written. */
  #nextRules: RuleOptions | undefined;
  /** The kernel was distrusted since the last sync began. */
  #isDistrusted = false;

  constructor(deps: DataPlaneDeps, options: TableOptions) {
    this.#deps = deps;
    this.#options = options;
    this.table = { family: options.family === 4 ? "ip" : "ip6", name: options.tableName };
  }

  /** The front ends that the kernel is known to hold. */
  get frontEnds(): ReadonlyMap<string, ObservedFrontEnd> {
    return this.#observed?.frontEnds ?? new Map();
  }

  /** True while the kernel's state is known. */
  get isKnown(): boolean {
    return this.#observed !== undefined;
  }

  /** Does what `DataPlane.counts` describes. */
  get counts(): TableCounts | undefined {
    return this.#observed?.tally.counts;
  }

  /** Does what `DataPlane.takeRemovedUdp` describes. */
  takeRemovedUdp(): ReadonlyMap<string, FrontEndKey> {
    return this.#removed.take();
  }

  /** Does what `DataPlane.nextCleanupAt` describes. */
  get nextCleanupAt(): number | undefined {
    return this.#observed?.uses.nextExpiry;
  }

  /** Sets the rules that the next sync writes, in one transaction. During a sync they are for the one after it. */
  setRules(options: RuleOptions): void {
    if (this.#isSyncing) this.#nextRules = options;
    else this.#options = { ...this.#options, ...options };
    this.distrust();
  }

  /** Makes the next sync list the kernel and repair every difference, also if one is running. */
  distrust(): void {
    this.#observed = undefined;
    this.#isDistrusted = true;
  }

  /**
   * State of the table under our name; reads no element. A table with our mark whose adoption was refused several times counts as
   * `foreign`: it has chains at other hooks, or sets of other types.
   */
  state(): TableState {
    const state = stateOf(this.#deps.elements.names(this.table));
    if (state === "absent" || state === "foreign") return state;
    return this.#refusals >= MAX_REFUSALS ? "foreign" : state;
  }

  /**
   * True if another program removed the table, a chain or a set, added a chain, or changed a rule. Cheap: the check reads no element. False
   * while the kernel's state is not known.
   */
  isDamaged(): boolean {
    if (this.#observed === undefined) return false;
    const { elements } = this.#deps;
    const names = elements.names(this.table);
    const chains = new Set(names?.chains);
    return (
      chains.size !== this.#observed.chains.size ||
      [...this.#observed.chains].some((name) => !chains.has(name)) ||
      [...setSpecs(this.#options.family, this.#options.affinityEntries).keys()].some(
        (name) => names?.sets.includes(name) !== true,
      ) ||
      elements.ruleHandles(this.table).join() !== this.#observed.rules?.join()
    );
  }

  /**
   * True if the table, or one of its chains, sets or rules, is missing, so that packets are not translated. Cheap, like {@link
   * ServiceTable.isDamaged}.
   */
  isBroken(): boolean {
    if (this.#observed === undefined) return false;
    const { elements } = this.#deps;
    const names = elements.names(this.table);
    const chains = new Set(names?.chains);
    return (
      [...this.#observed.chains].some((name) => !chains.has(name)) ||
      [...setSpecs(this.#options.family, this.#options.affinityEntries).keys()].some(
        (name) => names?.sets.includes(name) !== true,
      ) ||
      this.#observed.rules === undefined ||
      elements.ruleHandles(this.table).length < this.#observed.rules.length
    );
  }

  /** Does what `DataPlane.countAffinity` describes. */
  async countAffinity(options: AbortOptions): Promise<number | undefined> {
    if (this.#observed === undefined) return undefined;
    if (this.#observed.affinityTimeouts.length === 0) return 0;
    let count = 0;
    const keep = (): boolean => {
      count += 1;
      return false;
    };
    await this.#deps.elements.listInSlices(this.table, SETS.affinity, { ...options, keep });
    return count;
  }

  get affinityEntries(): number {
    return this.#options.affinityEntries ?? AFFINITY_ENTRIES;
  }

  /** Does what `DataPlane.trimAffinity` describes. */
  async trimAffinity(options: AbortOptions): Promise<readonly TrimmedService[]> {
    if (this.#observed === undefined) return [];
    const { frontEnds } = this.#observed;
    return await trimAffinity(this.#deps, this.table, { frontEnds, total: this.affinityEntries }, options);
  }

  /** Does what `DataPlane.sync` describes. Deletes a foreign table of the same name first. */
  async sync(wanted: WantedState, options: AbortOptions & { readonly full?: boolean }): Promise<SyncReport> {
    this.#isSyncing = true;
    this.#isDistrusted = false;
    try {
      return await this.#sync(wanted, options);
    } finally {
      this.#isSyncing = false;
      const rules = this.#nextRules;
      this.#nextRules = undefined;
      if (rules !== undefined) this.setRules(rules);
      // What the sync has listed may be older.
      if (this.#isDistrusted) this.#observed = undefined;
    }
  }

  async #sync(wanted: WantedState, options: AbortOptions & { readonly full?: boolean }): Promise<SyncReport> {
    const writer = new TableWriter(this.#deps, this.table, options);
    const isFull = options.full === true || !this.isKnown;
    const { services } = wanted;
    const requested = merged(this.#requested, services.takeChanged());
    this.#requested = requested;
    try {
      const observed = this.#observed ?? (await this.#adopt(writer));
      this.#observed = observed;
      // Later in the sync, rules are written for new shapes too.
      const isRenewed = writer.hasWrittenRules;
      await removeUnowned(observed, writer);
      const ids = isFull ? new Set([...observed.frontEnds.keys(), ...idsOf(services)]) : requested.frontEnds;
      const batches = { add: writer.batches(), remove: writer.batches() };
      const sets = changeSets(observed, wanted, requested, { ...batches, full: isFull });
      writer.drifted(sets.drift);
      await syncServiceCidrs(observed, wanted.serviceCIDRs, writer);
      await writer.commitAll(sets.add);
      const [deps, options, losses, removed] = [this.#deps, this.#options, this.#losses, this.#removed];
      await syncFrontEnds(
        { deps, writer, observed, options, requested: requested.frontEnds, losses, removed, isFull },
        wanted,
        ids,
      );
      await writer.commitAll(sets.remove);
      for (const [name, keys] of sets.next) observed.sets.set(name, keys);
      if (!observed.chains.has(COMPLETE_CHAIN)) await this.#complete(observed, writer);
      this.#requested = {
        frontEnds: new Set(),
        clusterIPs: new Set(),
        hairpinEndpoints: new Set(),
        nodePortIPs: wanted.nodePortIPs,
      };
      if (writer.hasWrittenRules) await this.#seal(observed, writer);
      return writer.report(isFull ? "full" : "partial", { isRenewed });
    } catch (error) {
      this.distrust();
      throw error;
    }
  }

  /** Deletes the table, whichever program made it. Returns false if there was none. Rejects with {@link DataPlaneError} `owned`. */
  async remove(): Promise<boolean> {
    if (this.#deps.elements.names(this.table) === undefined) return false;
    try {
      await new TableWriter(this.#deps, this.table).run(removeTable(this.table));
    } catch (cause) {
      throw this.#explained(cause);
    }
    this.distrust();
    this.#losses.clear();
    this.#refusals = 0;
    return true;
  }

  async #adopt(writer: TableWriter): Promise<ObservedTable> {
    try {
      const observed = await adopt(writer, this.#deps.elements, this.#options, this.state());
      this.#refusals = 0;
      return observed;
    } catch (error) {
      if (isRefusal(error)) this.#refusals += 1;
      throw this.#explained(error);
    }
  }

  /** Adds the cause and a fix to the kernel's error, which says only that the change is not permitted. */
  #explained(error: unknown): unknown {
    if (!(error instanceof NftError) || error.code !== "not-permitted") return error;
    const table = `table ${this.table.family} ${this.table.name}`;
    const fix = "stop that program (nft list ruleset shows its name), or choose another --table-name";
    return new DataPlaneError("owned", `Cannot change ${table}: another program owns it; ${fix}`, { cause: error });
  }

  /**
   * Seals the rules, so that the next start finds them right and does not write them. If another program made a transaction after our rules
   * were written, the kernel's rules may be from that program: they are not sealed, and the next repair writes our rules again.
   */
  async #seal(observed: ObservedTable, writer: TableWriter): Promise<void> {
    const { elements, generations } = this.#deps;
    await generations.idle();
    const { chains, affinityTimeouts } = observed;
    observed.rules = rulesOf(elements, { table: this.table, options: this.#options, chains, affinityTimeouts });
    const structure = elements.structure(this.table);
    if (observed.rules === undefined || generations.hasForeignChanges) return;
    const seal = sealOf(this.#options, { chains, affinityTimeouts, structure });
    if (chains.has(seal)) return;
    await writer.run(sealTable(this.table, seal, chains));
    observed.chains = new Set([...chains].filter((name) => !isSeal(name))).add(seal);
  }

  /** Hooks the filled table: packets pass through it from now on. */
  async #complete(observed: ObservedTable, writer: TableWriter): Promise<void> {
    await writer.run(hookTable(this.table, this.#options));
    observed.chains = new Set(this.#deps.elements.names(this.table)?.chains);
  }
}

/** Returns true if the kernel refuses what we write. False where it did not answer, or a list changed while it was read: a later try succeeds. */
function isRefusal(error: unknown): boolean {
  if (error instanceof NftError) return true;
  if (!isKernelError(error) || error.errno === "ENOBUFS") return false;
  return error.code !== "interrupted" && error.code !== "timeout";
}

/** The new requests together with those of a sync that failed. */
function merged(before: Requested, { frontEnds, clusterIPs, hairpinEndpoints }: ChangedKeys): Requested {
  return {
    frontEnds: before.frontEnds.size === 0 ? frontEnds : new Set([...before.frontEnds, ...frontEnds]),
    clusterIPs: before.clusterIPs.size === 0 ? clusterIPs : new Set([...before.clusterIPs, ...clusterIPs]),
    hairpinEndpoints:
      before.hairpinEndpoints.size === 0
        ? hairpinEndpoints
        : new Set([...before.hairpinEndpoints, ...hairpinEndpoints]),
    nodePortIPs: before.nodePortIPs,
  };
}

async function removeUnowned(observed: ObservedTable, writer: TableWriter): Promise<void> {
  if (observed.unowned.length === 0) return;
  const list = writer.batches();
  for (const { set, element } of observed.unowned) list.delete(set, element.key, element.keyEnd);
  await writer.commitAll(list);
  writer.drifted(list.count);
  observed.unowned = [];
}

async function syncServiceCidrs(
  observed: ObservedTable,
  serviceCIDRs: readonly Cidr[],
  writer: TableWriter,
): Promise<void> {
  const cidrs = withoutNested(serviceCIDRs).map(String).sort();
  if (cidrs.join(",") === observed.serviceCIDRs) return;
  await writer.run(setServiceCidrs(writer.table, cidrs));
  observed.serviceCIDRs = cidrs.join(",");
}

function* idsOf(services: WantedTable): Generator<string> {
  for (const [id] of services.frontEnds()) yield id;
}
