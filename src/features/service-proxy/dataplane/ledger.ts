import type { NftElements } from "#kernel/nft-elements";

/**
 * Tells our transactions from others': nftables of a namespace counts them all. Shared by the planes of one namespace; ask it only
 * while none of them is at work.
 */
export class Ledger {
  readonly #elements: Pick<NftElements, "generation">;
  #expected: number;

  constructor(elements: Pick<NftElements, "generation">) {
    this.#elements = elements;
    this.#expected = elements.generation();
  }

  /** A transaction of ours went through. */
  committed(): void {
    this.#expected = (this.#expected + 1) >>> 0;
  }

  /** What somebody else changed until now is known. */
  settle(): void {
    this.#expected = this.#elements.generation();
  }

  /** Somebody else has changed something, in whatever table. */
  get isTouched(): boolean {
    return this.#elements.generation() !== this.#expected;
  }
}
