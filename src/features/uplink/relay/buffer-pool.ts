/** Buffers that are allocated together: so large a piece comes from the kernel as pages that take no memory until they are written to. */
const PER_SLAB = 64;

/**
 * Buffers that sockets read into again and again; the one that was given back last goes out first, since its pages are there already.
 * An idle tunnel costs a page, not a buffer. Slabs are kept: there are as many as the most tunnels at once have needed.
 */
export class BufferPool {
  readonly #bytes: number;
  readonly #spare: Uint8Array[] = [];
  #total = 0;

  /** `bytes` is the size of each. */
  constructor(bytes: number) {
    this.#bytes = bytes;
  }

  /** How many are out. */
  get taken(): number {
    return this.#total - this.#spare.length;
  }

  take(): Uint8Array {
    if (this.#spare.length === 0) this.#grow();
    const buffer = this.#spare.pop();
    if (buffer === undefined) throw new RangeError("BufferPool: a slab without buffers");
    return buffer;
  }

  /** Each once, when nobody reads or writes it any more. */
  giveBack(buffer: Uint8Array): void {
    this.#spare.push(buffer);
  }

  #grow(): void {
    const slab = new Uint8Array(this.#bytes * PER_SLAB);
    this.#total += PER_SLAB;
    // The first one goes out first.
    for (let at = PER_SLAB - 1; at >= 0; at -= 1) {
      this.#spare.push(Buffer.from(slab.buffer, at * this.#bytes, this.#bytes));
    }
  }
}
