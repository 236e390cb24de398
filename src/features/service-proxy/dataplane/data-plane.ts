import type { AbortOptions } from "#base/async";
import type { ElementTable } from "#kernel/nft-elements";
import type { FrontEndKey, ObservedFrontEnd, TableCounts } from "../plan/index.ts";
import type { RuleOptions } from "../rules/index.ts";
import type { TrimmedService } from "./affinity-shares.ts";
import { ServiceTable } from "./service-table.ts";
import { REPLACEMENT_PRIORITY_OFFSET, REPLACEMENT_SUFFIX, takeOver } from "./takeover.ts";
import type { DataPlaneDeps, SyncReport, WantedState } from "./types.ts";

/**
 * The table of one family, and its replacement table while another program's table is taken over. The caller must not start a sync while
 * another sync runs.
 */
export class DataPlane {
  readonly #deps: DataPlaneDeps;
  readonly #table: ServiceTable;
  readonly #replacement: ServiceTable;

  constructor(deps: DataPlaneDeps, options: RuleOptions & { readonly tableName: string }) {
    this.#deps = deps;
    this.#table = new ServiceTable(deps, options);
    const tableName = `${options.tableName}${REPLACEMENT_SUFFIX}`;
    this.#replacement = new ServiceTable(deps, { ...options, tableName, priorityOffset: REPLACEMENT_PRIORITY_OFFSET });
  }

  get table(): ElementTable & { readonly family: "ip" | "ip6" } {
    return this.#table.table;
  }

  /** The front ends that the kernel is known to hold. */
  get frontEnds(): ReadonlyMap<string, ObservedFrontEnd> {
    return this.#table.frontEnds;
  }

  /** True while the kernel's state is known: since the last sync that succeeded. */
  get isKnown(): boolean {
    return this.#table.isKnown;
  }

  /** Number of objects in the table; `undefined` while the kernel's state is not known. */
  get counts(): TableCounts | undefined {
    return this.#table.counts;
  }

  /**
   * Returns and forgets the UDP front ends that syncs have removed from the kernel since the last call, by id: also those of a table that an
   * earlier run left. To be called after a sync that succeeded.
   */
  takeRemovedUdp(): ReadonlyMap<string, FrontEndKey> {
    return this.#table.takeRemovedUdp();
  }

  /**
   * Monotonic time in milliseconds from which on a sync deletes chains that no front end has needed for a while; `undefined`: all are
   * needed, or the kernel's state is not known.
   */
  get nextCleanupAt(): number | undefined {
    return this.#table.nextCleanupAt;
  }

  /** Sets the rules that the next sync writes, in one transaction. */
  setRules(options: RuleOptions): void {
    this.#table.setRules(options);
    this.#replacement.setRules(options);
  }

  /** Makes the next sync list the kernel and repair every difference. */
  distrust(): void {
    this.#table.distrust();
    this.#replacement.distrust();
  }

  /**
   * True if a complete table of this layout, from an earlier run, is in force. A complete replacement table counts too
   * (docs/spec/service-proxy.md#1.6).
   */
  hasCompleteTable(): boolean {
    return this.#table.state() === "whole" || this.#replacement.state() === "whole";
  }

  /** True if another program removed the table, a chain or a set, or changed a rule. Cheap: the check reads no element. */
  isDamaged(): boolean {
    return this.#table.isDamaged();
  }

  /**
   * True if the table, or one of its chains, sets or rules, is missing, so that packets are not translated. Cheap: the check reads no
   * element.
   */
  isBroken(): boolean {
    return this.#table.isBroken();
  }

  /**
   * Number of clients that are remembered: entries of the affinity map, which is listed in slices, 1 µs an entry. 0 without a listing if no front end has
   * affinity; `undefined` while the kernel's state is not known. Rejects with `KernelError`.
   */
  async countAffinity(options: AbortOptions): Promise<number | undefined> {
    return await this.#table.countAffinity(options);
  }

  /**
   * Removes the oldest clients of each Service that has more than its share of the affinity map, and returns which those were
   * (docs/spec/service-proxy.md#2.7). Rejects with `KernelError`.
   */
  async trimAffinity(options: AbortOptions): Promise<readonly TrimmedService[]> {
    return await this.#table.trimAffinity(options);
  }

  /** Maximum of clients that session affinity remembers. */
  get affinityEntries(): number {
    return this.#table.affinityEntries;
  }

  /**
   * Writes the difference between the wanted state and the kernel. With `full`, the sync compares everything, else only what changed in
   * `services`. Rejects with `NftError`, `KernelError` or `DataPlaneError` `owned`; after that, the next sync lists the kernel's elements.
   */
  async sync(wanted: WantedState, options: AbortOptions & { readonly full?: boolean } = {}): Promise<SyncReport> {
    if (this.#table.isKnown) return this.#table.sync(wanted, options);
    try {
      return await this.#start(wanted, options);
    } catch (error) {
      this.distrust();
      throw error;
    }
  }

  /**
   * Deletes the table, and a replacement table if an earlier takeover left one. Returns false if neither table existed. Tries to delete
   * both tables before it rejects. Rejects with the errors of {@link DataPlane.sync}.
   */
  async remove(): Promise<boolean> {
    const done = await Promise.allSettled([this.#table.remove(), this.#replacement.remove()]);
    const refused = done.find(({ status }) => status === "rejected");
    if (refused?.status === "rejected") throw refused.reason;
    return done.some((one) => one.status === "fulfilled" && one.value);
  }

  /** Syncs while the kernel's state is not known: at the program's start, or for a repair. */
  async #start(wanted: WantedState, options: AbortOptions): Promise<SyncReport> {
    const { log, clock } = this.#deps;
    const [state, replacement] = [this.#table.state(), this.#replacement.state()];
    // A foreign replacement table is not in force.
    const hasReplacement = replacement === "whole" || replacement === "partial";
    const isTakenOver = state === "foreign" || (hasReplacement && state !== "whole");
    if (!isTakenOver) {
      const report = await this.#table.sync(wanted, options);
      await this.#replacement.remove();
      return report;
    }
    const table = `${this.table.family} ${this.table.name}`;
    log.info("a table of another program or of another layout is replaced; connections continue", { table });
    return takeOver({ table: this.#table, replacement: this.#replacement }, wanted, { signal: options.signal, clock });
  }
}
