/** Smaller chunks share a block of this size, in bytes: each would take some hundred bytes besides its own, and a send of its own. */
const BLOCK_BYTES = 16_384;

/** Bytes that wait to be sent, in their order: copies of what was written. */
export class WaitingBytes {
  readonly #blocks: Uint8Array[] = [];
  /** The bytes of the first block that were sent. */
  #sent = 0;
  /** The bytes of the last block that are in use. The other blocks are full. */
  #used = 0;
  #length = 0;

  /** The number of bytes that wait. */
  get length(): number {
    return this.#length;
  }

  /** Appends a copy of the bytes from `start` to `end`. */
  push(chunk: Uint8Array, start: number, end: number): void {
    this.#room(end - start).set(chunk.subarray(start, end), this.#used);
    this.#used += end - start;
    this.#length += end - start;
  }

  /** A view of the bytes to send next; `undefined` if none wait. */
  next(): Uint8Array | undefined {
    const [first] = this.#blocks;
    return first?.subarray(this.#sent, this.#blocks.length === 1 ? this.#used : first.length);
  }

  /** Removes the first bytes, at most as many as {@link next} has. */
  remove(bytes: number): void {
    const isWhole = bytes === this.next()?.length;
    this.#length -= bytes;
    this.#sent += bytes;
    if (!isWhole) return;
    this.#blocks.shift();
    this.#sent = 0;
  }

  /** The last block, which has room for `length` bytes from {@link #used} on. */
  #room(length: number): Uint8Array {
    const blocks = this.#blocks;
    const last = blocks.at(-1);
    if (last !== undefined) {
      const needed = this.#used + length;
      if (needed <= last.length) return last;
      const used = last.subarray(0, this.#used);
      if (needed <= BLOCK_BYTES) {
        const grown = Buffer.allocUnsafeSlow(Math.min(BLOCK_BYTES, Math.max(needed, 2 * last.length)));
        grown.set(used);
        blocks[blocks.length - 1] = grown;
        return grown;
      }
      blocks[blocks.length - 1] = used;
    }
    const made = Buffer.allocUnsafeSlow(length);
    blocks.push(made);
    this.#used = 0;
    return made;
  }
}
