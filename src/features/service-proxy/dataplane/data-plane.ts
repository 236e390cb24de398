import type { AbortOptions } from "#base/async";
import { nullLogger } from "#base/log";
import type { ElementTable } from "#kernel/nft-elements";
import type { HeldFrontEnd } from "../plan/index.ts";
import type { RuleOptions } from "../rules/index.ts";
import { FamilyTable } from "./family-table.ts";
import { STAND_IN_OFFSET, STAND_IN_SUFFIX, takeOver } from "./takeover.ts";
import type { DataPlaneDeps, Desired, SyncReport } from "./types.ts";

/** One family's table, and what stands in for it while somebody else's is being replaced. One sync at a time. */
export class DataPlane {
  readonly #deps: DataPlaneDeps;
  readonly #table: FamilyTable;
  readonly #standIn: FamilyTable;

  constructor(deps: DataPlaneDeps, options: RuleOptions & { readonly tableName: string }) {
    this.#deps = deps;
    this.#table = new FamilyTable(deps, options);
    const tableName = `${options.tableName}${STAND_IN_SUFFIX}`;
    this.#standIn = new FamilyTable(deps, { ...options, tableName, priorityOffset: STAND_IN_OFFSET });
  }

  get table(): ElementTable & { readonly family: "ip" | "ip6" } {
    return this.#table.table;
  }

  /** The front ends that the kernel holds, as far as is known. */
  get frontEnds(): ReadonlyMap<string, HeldFrontEnd> {
    return this.#table.frontEnds;
  }

  /** Other rules from now on: the next sync writes them, in one transaction. */
  setRules(options: RuleOptions): void {
    this.#table.setRules(options);
    this.#standIn.setRules(options);
  }

  /** The next sync lists the kernel and repairs what differs. */
  distrust(): void {
    this.#table.distrust();
    this.#standIn.distrust();
  }

  /** Whether a table of this layout, filled to the end by an earlier run, is in force, if as a stand-in (docs/spec/service-proxy.md#1.6). */
  hasCompleteTable(): boolean {
    return this.#table.state() === "whole" || this.#standIn.state() === "whole";
  }

  /** Whether somebody removed the table, a chain or a set of it, or touched a rule: cheap, no element is read. */
  isDamaged(): boolean {
    return this.#table.isDamaged();
  }

  /** Whether what is gone of it keeps packets from being served: the table, chains, sets or rules. Cheap. */
  isBroken(): boolean {
    return this.#table.isBroken();
  }

  /**
   * Makes the table hold what is wanted. `full`: compares everything, else what `services` says is dirty. Rejects with `NftError`,
   * `KernelError` or `DataPlaneError` `owned`; what the kernel holds is then listed by the next sync.
   */
  async sync(desired: Desired, options: AbortOptions & { readonly full?: boolean } = {}): Promise<SyncReport> {
    if (this.#table.isKnown) return this.#table.sync(desired, options);
    try {
      return await this.#start(desired, options);
    } catch (error) {
      this.distrust();
      throw error;
    }
  }

  /**
   * Deletes the table, and a stand-in that was left; false when there was neither. Both are tried before it rejects, as
   * {@link DataPlane.sync} does.
   */
  async remove(): Promise<boolean> {
    const done = await Promise.allSettled([this.#table.remove(), this.#standIn.remove()]);
    const refused = done.find(({ status }) => status === "rejected");
    if (refused?.status === "rejected") throw refused.reason;
    return done.some((one) => one.status === "fulfilled" && one.value);
  }

  /** With a kernel of which nothing is known yet: a start, or a repair. */
  async #start(desired: Desired, options: AbortOptions): Promise<SyncReport> {
    const { log = nullLogger, clock } = this.#deps;
    const [state, standIn] = [this.#table.state(), this.#standIn.state()];
    // A stand-in that cannot be made use of stands in for nothing.
    const isStoodInFor = standIn === "whole" || standIn === "partial";
    const isTakenOver = state === "foreign" || (isStoodInFor && state !== "whole");
    if (!isTakenOver) {
      const report = await this.#table.sync(desired, options);
      await this.#standIn.remove();
      return report;
    }
    const table = `${this.table.family} ${this.table.name}`;
    log.info("a table of another program or layout is replaced; connections go on", { table });
    return takeOver({ table: this.#table, standIn: this.#standIn }, desired, { signal: options.signal, clock });
  }
}
