/** Maximum of entries at the start of the array whose bytes were taken. If there are more, the array is cut. */
const MAX_TAKEN_PIECES = 64;

/**
 * Replaces a piece that was taken, so that its bytes can be freed before the array is cut: without this, a connection could hold 4 MiB of
 * such bytes.
 */
const TAKEN = new Uint8Array(0);

/** A FIFO of bytes without copies. It holds no reference to bytes that were taken. */
export class ByteQueue {
  readonly #pieces: Uint8Array[] = [];
  #head = 0;
  /** The number of bytes of the first piece that were taken. */
  #at = 0;
  #length = 0;

  /** Bytes that wait. */
  get length(): number {
    return this.#length;
  }

  /** Adds bytes at the end; they must not change before they are taken. */
  push(bytes: Uint8Array): void {
    if (bytes.length === 0) return;
    this.#pieces.push(bytes);
    this.#length += bytes.length;
  }

  /** Takes bytes of the first piece, at most `size` (above 0), as a view. Throws an `Error` (a bug) if the queue is empty. */
  next(size: number): Uint8Array {
    const piece = this.#pieces[this.#head];
    if (piece === undefined) throw new Error(`${size} bytes of ${size} are not in the queue`);
    const at = this.#at;
    const end = at + size;
    if (end < piece.length) {
      this.#at = end;
      this.#length -= size;
      return piece.subarray(at, end);
    }
    this.#pieces[this.#head] = TAKEN;
    this.#head += 1;
    this.#at = 0;
    this.#length -= piece.length - at;
    if (this.#head === this.#pieces.length) {
      this.#pieces.length = 0;
      this.#head = 0;
    } else if (this.#head > MAX_TAKEN_PIECES) {
      this.#pieces.splice(0, this.#head);
      this.#head = 0;
    }
    return at === 0 ? piece : piece.subarray(at);
  }

  /** Moves the first `size` bytes to the end of `out`. Throws an `Error` (a bug) if the queue has fewer; nothing is moved then. */
  take(size: number, out: Uint8Array[]): void {
    if (size > this.#length) throw new Error(`${size - this.#length} bytes of ${size} are not in the queue`);
    for (let missing = size; missing > 0; ) {
      const part = this.next(missing);
      out.push(part);
      missing -= part.length;
    }
  }

  clear(): void {
    this.#pieces.length = 0;
    this.#head = 0;
    this.#at = 0;
    this.#length = 0;
  }
}
