import type { AbortOptions } from "#base/async";
import type { NftTransaction } from "#kernel/nft";
import { ElementBatch, type ElementTable } from "#kernel/nft-elements";
import type { Phases } from "../plan/index.ts";
import type { DataPlaneDeps, SyncReport } from "./types.ts";

/** Commits and counts the transactions of one sync of one table. Rejects with `NftError` or `KernelError`; a refused transaction changes nothing. */
export class TableWriter {
  readonly table: ElementTable & { readonly family: "ip" | "ip6" };
  readonly options: AbortOptions;
  readonly #deps: Pick<DataPlaneDeps, "nft" | "elements" | "generations">;
  #changes = 0;
  #drift = 0;
  #transactions = 0;
  #bytes = 0;
  #hasWrittenRules = false;

  constructor(
    deps: Pick<DataPlaneDeps, "nft" | "elements" | "generations">,
    table: TableWriter["table"],
    options: AbortOptions = {},
  ) {
    this.#deps = deps;
    this.table = table;
    this.options = options;
  }

  batch(): ElementBatch {
    return new ElementBatch(this.table, { record: this.#deps.elements.wantsRecords });
  }

  phases(): Phases {
    return { add: this.batch(), switch: this.batch(), remove: this.batch() };
  }

  /** Commits elements; does nothing for an empty batch. */
  async commit(batch: ElementBatch, changes = batch.count): Promise<void> {
    if (batch.isEmpty) return;
    await this.#deps.generations.transact(() => this.#deps.elements.commit(batch, this.options));
    this.#count(changes, batch.byteLength);
  }

  /** Counts elements that differ though no plan requested a change. */
  drifted(count: number): void {
    this.#drift += count;
  }

  /** Chains, sets or rules were written, besides elements. */
  get hasWrittenRules(): boolean {
    return this.#hasWrittenRules;
  }

  /** Commits maps and compiled rules, which do not count as elements. */
  async commitRules(fill: (batch: ElementBatch) => void): Promise<void> {
    this.#hasWrittenRules = true;
    const batch = this.batch();
    fill(batch);
    await this.commit(batch, 0);
  }

  /** Commits chains, sets and printed rules. */
  async run(transaction: NftTransaction): Promise<void> {
    if (transaction.isEmpty) return;
    this.#hasWrittenRules = true;
    await this.#deps.generations.transact(() => this.#deps.nft.run(transaction));
    this.#count(0, 0);
  }

  /** Report of everything that was written. `isRenewed`: the rules were written again when the table was adopted. */
  report(kind: SyncReport["kind"], { isRenewed }: { readonly isRenewed: boolean }): SyncReport {
    return {
      kind,
      changes: this.#changes,
      drift: this.#drift,
      isRepair: isRenewed || this.#drift > 0,
      transactions: this.#transactions,
      bytes: this.#bytes,
    };
  }

  #count(changes: number, bytes: number): void {
    this.#changes += changes;
    this.#bytes += bytes;
    this.#transactions += 1;
  }
}
