/** Pieces shorter than this are copied together: a view takes more memory than a short piece. */
const SHORT_BYTES = 2048;
const SLAB_BYTES = 16 * 1024;

/** Received bytes of a stream that is not read. Their memory is about their number. */
export class HeldBytes {
  #pieces: Uint8Array[] = [];
  /** The buffer of the last piece, if that joins short pieces. */
  #slab: Uint8Array | undefined;

  get isEmpty(): boolean {
    return this.#pieces.length === 0;
  }

  push(piece: Uint8Array): void {
    if (piece.length >= SHORT_BYTES) {
      this.#slab = undefined;
      this.#pieces.push(piece);
      return;
    }
    const last = this.#pieces.at(-1);
    if (this.#slab !== undefined && last !== undefined && last.length + piece.length <= SLAB_BYTES) {
      this.#slab.set(piece, last.length);
      this.#pieces[this.#pieces.length - 1] = this.#slab.subarray(0, last.length + piece.length);
      return;
    }
    this.#slab = new Uint8Array(SLAB_BYTES);
    this.#slab.set(piece);
    this.#pieces.push(this.#slab.subarray(0, piece.length));
  }

  /** Removes the pieces, in order, and passes each to `use`, as long as `isWanted`. */
  drain(isWanted: () => boolean, use: (piece: Uint8Array) => void): void {
    const pieces = this.#pieces;
    this.#slab = undefined;
    let used = 0;
    while (used < pieces.length && isWanted()) {
      used += 1;
      use(pieces[used - 1] as Uint8Array);
    }
    pieces.splice(0, used);
  }

  clear(): void {
    this.#pieces = [];
    this.#slab = undefined;
  }
}
