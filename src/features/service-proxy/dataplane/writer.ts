import type { AbortOptions } from "#base/async";
import type { NftTransaction } from "#kernel/nft";
import { ElementBatch, type ElementTable } from "#kernel/nft-elements";
import type { DataPlaneDeps, SyncReport } from "./types.ts";

/** Room for what a batch gets after its length was asked: one element, headers and the end. */
const SPARE_BYTES = 4096;

/** Changes that need not be made at once: as many batches as the kernel takes at a time, in order. */
export class BatchList {
  readonly batches: ElementBatch[] = [];
  readonly #make: () => ElementBatch;
  readonly #maxBytes: number;

  /** `maxBytes`: the length of the largest batch that can be committed. */
  constructor(make: () => ElementBatch, maxBytes: number) {
    this.#make = make;
    this.#maxBytes = maxBytes - SPARE_BYTES;
  }

  add(...change: Parameters<ElementBatch["add"]>): this {
    this.#last().add(...change);
    return this;
  }

  delete(...change: Parameters<ElementBatch["delete"]>): this {
    this.#last().delete(...change);
    return this;
  }

  /** Number of changes. */
  get count(): number {
    return this.batches.reduce((sum, { count }) => sum + count, 0);
  }

  #last(): ElementBatch {
    const last = this.batches.at(-1);
    if (last !== undefined && last.byteLength < this.#maxBytes) return last;
    const made = this.#make();
    this.batches.push(made);
    return made;
  }
}

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

  /** A list for changes that may take several transactions. */
  batches(): BatchList {
    return new BatchList(() => this.batch(), this.#deps.elements.maxBatchBytes);
  }

  /** The phases of an update (`Phases`). What no verdict leads to may be removed bit by bit. */
  phases(): { readonly add: ElementBatch; readonly switch: ElementBatch; readonly remove: BatchList } {
    return { add: this.batch(), switch: this.batch(), remove: this.batches() };
  }

  /** Commits elements; does nothing for an empty batch. */
  async commit(batch: ElementBatch, changes = batch.count): Promise<void> {
    if (batch.isEmpty) return;
    await this.#deps.generations.transact(() => this.#deps.elements.commit(batch, this.options));
    this.#count(changes, batch.byteLength);
  }

  /** Commits each batch by itself. */
  async commitAll(list: BatchList): Promise<void> {
    for (const batch of list.batches) await this.commit(batch);
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
