/** Maximum of entries at the start of the array whose bytes were taken. If there are more, the array is cut. */
const MAX_TAKEN_PIECES = 64;

interface Piece {
  readonly bytes: Uint8Array;
  /** The number of bytes of the first piece that were taken. */
  at: number;
}

/**
 * Replaces a piece that was taken, so that its bytes can be freed before the array is cut: without this, a connection could hold 4 MiB of
 * such bytes.
 */
const TAKEN: Piece = { bytes: new Uint8Array(0), at: 0 };

/** A FIFO of bytes without copies. It holds no reference to bytes that were taken. */
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

  /** Moves the first `size` bytes to the end of `out`. Throws an `Error` (a bug) if the queue has fewer. */
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
      this.#pieces[this.#head] = TAKEN;
      this.#head += 1;
    }
    this.#length -= size;
    if (this.#head < this.#pieces.length && this.#head <= MAX_TAKEN_PIECES) return;
    this.#pieces.splice(0, this.#head);
    this.#head = 0;
  }

  clear(): void {
    this.#pieces.length = 0;
    this.#head = 0;
    this.#length = 0;
  }
}
