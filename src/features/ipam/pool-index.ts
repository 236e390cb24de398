/** The way the controller chooses the next block of a pool. */
export type BlockAllocation = "first-fit" | "next-fit";

/** `index` of an AddressBlock is an int32. */
export const MAX_BLOCK_INDEX = 2 ** 31 - 1;

/** The taken block indexes of one pool. Rebuilt from a live list; pure memory. */
export class PoolIndex {
  #used = new Set<number>();
  #hint = 0;
  #last = -1;

  /** The number of taken indexes. */
  get size(): number {
    return this.#used.size;
  }

  /** Replaces everything by the result of a live list. */
  reset(indexes: Iterable<number>): void {
    this.#used = new Set(indexes);
    this.#hint = 0;
  }

  has(index: number): boolean {
    return this.#used.has(index);
  }

  mark(index: number): void {
    this.#used.add(index);
    this.#last = index;
  }

  release(index: number): void {
    this.#used.delete(index);
    this.#hint = Math.min(this.#hint, index);
  }

  /**
   * The next free index below `capacity` that may be used; `undefined` when there is none. It is not marked. For a free index, `stepsOver`
   * returns how many indexes from it on may not be used, or 0 if it may be used; skipped indexes stay free.
   */
  next(
    capacity: number,
    allocation: BlockAllocation,
    stepsOver: (index: number) => number = () => 0,
  ): number | undefined {
    const end = Math.min(capacity, MAX_BLOCK_INDEX + 1);
    if (allocation === "first-fit") {
      // All indexes before this one are taken, until an index is released.
      this.#hint = this.#firstFree(this.#hint, end, () => 0) ?? end;
      return this.#firstFree(this.#hint, end, stepsOver);
    }
    const from = this.#last + 1;
    return this.#firstFree(from, end, stepsOver) ?? this.#firstFree(0, Math.min(end, from), stepsOver);
  }

  #firstFree(from: number, to: number, stepsOver: (index: number) => number): number | undefined {
    for (let index = from; index < to; ) {
      const steps = this.#used.has(index) ? 1 : stepsOver(index);
      if (steps === 0) return index;
      index += steps;
    }
    return undefined;
  }
}
