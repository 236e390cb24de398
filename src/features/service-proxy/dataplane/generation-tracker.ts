import type { NftElements } from "#kernel/nft-elements";

/**
 * Tells our transactions from others': nftables of a namespace counts them all, but for those that change nothing. Shared by the
 * planes of one namespace; ask it only while none of them is at work.
 */
export class GenerationTracker {
  readonly #elements: Pick<NftElements, "generation">;
  /** As of the last moment when none of ours was under way. */
  #expected: number;
  #underWay = 0;
  #since = 0;
  #hasForeignChanges = false;

  constructor(elements: Pick<NftElements, "generation">) {
    this.#elements = elements;
    this.#expected = elements.generation();
  }

  /** Runs a transaction of ours; its failure changes nothing, and is passed on. */
  async transact(run: () => void | Promise<void>): Promise<void> {
    this.#underWay += 1;
    this.#since += 1;
    try {
      await run();
    } finally {
      this.#underWay -= 1;
      if (this.#underWay === 0) this.#count();
    }
  }

  /** What somebody else changed until now is known. */
  settle(): void {
    this.#hasForeignChanges = false;
    this.#expected = this.#elements.generation();
  }

  /** Somebody else has changed something, in whatever table. */
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
