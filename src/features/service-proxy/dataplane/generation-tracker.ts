import { Deferred } from "#base/async";
import type { NftElements } from "#kernel/nft-elements";

/**
 * Tells our nftables transactions from those of other programs. The kernel counts all transactions of a network namespace that change
 * something. The data planes of one namespace share one tracker. It may be read only while none of them is syncing.
 */
export class GenerationTracker {
  readonly #elements: Pick<NftElements, "generation">;
  /** The generation when our last transaction ended. */
  #expected: number;
  #underWay = 0;
  #since = 0;
  #hasForeignChanges = false;
  /** Resolved while none of our transactions is running. */
  #idle = new Deferred();

  constructor(elements: Pick<NftElements, "generation">) {
    this.#elements = elements;
    this.#expected = elements.generation();
  }

  /**
   * Runs one of our transactions. Rejects with the error of `run`; a failed transaction has changed nothing. Rejects with `KernelError` too if
   * the kernel does not tell its generation after `run`: our transactions until then are counted with the next one.
   */
  async transact(run: () => void | Promise<void>): Promise<void> {
    if (this.#underWay === 0) this.#idle = new Deferred();
    this.#underWay += 1;
    try {
      await run();
      // A refused transaction has no generation: counted, it would hide one of another program.
      this.#since += 1;
    } finally {
      this.#underWay -= 1;
      if (this.#underWay === 0) {
        try {
          this.#count();
        } finally {
          this.#idle.resolve();
        }
      }
    }
  }

  /** Resolves when none of our transactions is running. */
  async idle(): Promise<void> {
    while (this.#underWay > 0) await this.#idle.promise;
  }

  /** Acknowledges the changes of other programs until now. Throws `KernelError`; the changes are then not acknowledged. */
  settle(): void {
    this.#expected = this.#elements.generation();
    this.#hasForeignChanges = false;
  }

  /** True if another program has changed any nftables table since the last {@link GenerationTracker.settle}. Throws `KernelError`. */
  get hasForeignChanges(): boolean {
    return this.#hasForeignChanges || this.#elements.generation() !== this.#expected;
  }

  #count(): void {
    const now = this.#elements.generation();
    if ((now - this.#expected) >>> 0 > this.#since) this.#hasForeignChanges = true;
    this.#expected = now;
    this.#since = 0;
  }
}
