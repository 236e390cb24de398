/** How the controller chooses the next block of a pool. */
export type BlockAllocation = "first-fit" | "next-fit";

/** `index` of an AddressBlock is an int32. */
export const MAX_BLOCK_INDEX = 2 ** 31 - 1;

/** Which block indexes of one pool are taken. Rebuilt from a live list; pure memory. */
export class PoolIndex {
  #used = new Set<number>();
  #hint = 0;
  #last = -1;

  /** The number of taken indexes. */
  get size(): number {
    return this.#used.size;
  }

  /** Replaces everything by what a live list found. */
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

  /** The next free index below `capacity`; `undefined` when there is none. It is not marked. */
  next(capacity: number, allocation: BlockAllocation): number | undefined {
    const end = Math.min(capacity, MAX_BLOCK_INDEX + 1);
    if (allocation === "first-fit") {
      const found = this.#firstFree(this.#hint, end);
      // Everything before is taken; it stays so until something is released.
      this.#hint = found ?? end;
      return found;
    }
    return this.#firstFree(this.#last + 1, end) ?? this.#firstFree(0, Math.min(end, this.#last + 1));
  }

  #firstFree(from: number, to: number): number | undefined {
    for (let index = from; index < to; index += 1) if (!this.#used.has(index)) return index;
    return undefined;
  }
}
