/** Blocks of up to this many addresses use a bitmap; larger ones a set of the used offsets. */
export const MAX_BITMAP_SLOTS = 2 ** 20;
/** The maximum number of slots of one block that are used, so that offsets are exact numbers. */
export const MAX_SLOTS = Number.MAX_SAFE_INTEGER;

/**
 * The slots of one block: the taken offsets, and the last allocated offset. The next slot is the first free slot after that offset, from
 * the start again after the end, so that a freed address is used again as late as possible (docs/spec/pod-network.md#4.5).
 */
export class Slots {
  readonly capacity: number;
  readonly #taken: Bits;
  #last = -1;
  #used = 0;

  /** `size` is the number of addresses of the block. */
  constructor(size: bigint | number) {
    this.capacity = size > MAX_SLOTS ? MAX_SLOTS : Number(size);
    this.#taken = this.capacity <= MAX_BITMAP_SLOTS ? new Bitmap(this.capacity) : new SparseBits();
  }

  get used(): number {
    return this.#used;
  }

  get free(): number {
    return this.capacity - this.#used;
  }

  has(offset: number): boolean {
    return this.#taken.has(offset);
  }

  /** Takes the next slot; `undefined` if all slots are taken. */
  take(): number | undefined {
    if (this.free === 0) return undefined;
    const offset = this.#taken.firstClear(this.#last + 1, this.capacity) ?? this.#taken.firstClear(0, this.#last + 1);
    if (offset === undefined) return undefined;
    this.mark(offset);
    this.#last = offset;
    return offset;
  }

  /**
   * Marks an offset as taken, for an address that was read from the kernel. Does nothing if the offset is already taken. Throws
   * `RangeError` outside the block.
   */
  mark(offset: number): void {
    if (!Number.isSafeInteger(offset) || offset < 0 || offset >= this.capacity) {
      throw new RangeError(`offset ${offset} is outside a block of ${this.capacity} addresses`);
    }
    if (this.#taken.has(offset)) return;
    this.#taken.add(offset);
    this.#used += 1;
  }

  /** Makes an offset free. Does nothing if it is already free. */
  release(offset: number): void {
    if (!this.#taken.has(offset)) return;
    this.#taken.delete(offset);
    this.#used -= 1;
  }

  /** Lets the next allocation continue after `offset`, for example after the address of the most recent attachment. */
  continueAfter(offset: number): void {
    this.#last = offset;
  }
}

interface Bits {
  has(offset: number): boolean;
  add(offset: number): void;
  delete(offset: number): void;
  /** The first clear offset in [from, to). */
  firstClear(from: number, to: number): number | undefined;
}

class Bitmap implements Bits {
  readonly #words: Uint32Array;

  constructor(size: number) {
    this.#words = new Uint32Array(Math.ceil(size / 32));
  }

  has(offset: number): boolean {
    return ((this.#words[offset >>> 5] ?? 0) & (1 << (offset & 31))) !== 0;
  }

  add(offset: number): void {
    const at = offset >>> 5;
    this.#words[at] = (this.#words[at] ?? 0) | (1 << (offset & 31));
  }

  delete(offset: number): void {
    const at = offset >>> 5;
    this.#words[at] = (this.#words[at] ?? 0) & ~(1 << (offset & 31));
  }

  firstClear(from: number, to: number): number | undefined {
    for (let offset = from; offset < to; ) {
      const word = this.#words[offset >>> 5] ?? 0;
      // Clear bits of this word at or after the offset, lowest first.
      const clear = ~word & (-1 << (offset & 31));
      if (clear !== 0) {
        const found = (offset & ~31) + (31 - Math.clz32(clear & -clear));
        return found < to ? found : undefined;
      }
      offset = (offset & ~31) + 32;
    }
    return undefined;
  }
}

class SparseBits implements Bits {
  readonly #offsets = new Set<number>();

  has(offset: number): boolean {
    return this.#offsets.has(offset);
  }

  add(offset: number): void {
    this.#offsets.add(offset);
  }

  delete(offset: number): void {
    this.#offsets.delete(offset);
  }

  /** Takes at most one step for each taken offset. */
  firstClear(from: number, to: number): number | undefined {
    for (let offset = from; offset < to; offset += 1) if (!this.#offsets.has(offset)) return offset;
    return undefined;
  }
}
