/** So many entries of pieces that have left may stand before the others. */
const MAX_LEFT = 64;

interface Piece {
  readonly bytes: Uint8Array;
  /** So much of it has left. */
  at: number;
}

/** In the place of a piece that has left: what was sent must not be held until the array is cut, up to 4 MiB a connection. */
const LEFT: Piece = { bytes: new Uint8Array(0), at: 0 };

/** Bytes that wait, in order and without a copy. What was taken is let go at once. */
export class ByteQueue {
  readonly #pieces: Piece[] = [];
  #head = 0;
  #length = 0;

  /** Bytes that wait. */
  get length(): number {
    return this.#length;
  }

  /** Adds bytes at the end; they must not change before they are taken. */
  push(bytes: Uint8Array): void {
    if (bytes.length === 0) return;
    this.#pieces.push({ bytes, at: 0 });
    this.#length += bytes.length;
  }

  /** Moves the first `size` bytes, of at least as many, to the end of `out`. */
  take(size: number, out: Uint8Array[]): void {
    let missing = size;
    while (missing > 0) {
      const piece = this.#pieces[this.#head];
      if (piece === undefined) throw new Error(`${missing} bytes of ${size} are not in the queue`);
      const part = Math.min(missing, piece.bytes.length - piece.at);
      out.push(part === piece.bytes.length ? piece.bytes : piece.bytes.subarray(piece.at, piece.at + part));
      piece.at += part;
      missing -= part;
      if (piece.at < piece.bytes.length) continue;
      this.#pieces[this.#head] = LEFT;
      this.#head += 1;
    }
    this.#length -= size;
    if (this.#head < this.#pieces.length && this.#head <= MAX_LEFT) return;
    this.#pieces.splice(0, this.#head);
    this.#head = 0;
  }

  clear(): void {
    this.#pieces.length = 0;
    this.#head = 0;
    this.#length = 0;
  }
}
