/** Limits of a header block: its bytes, compressed, and its frames. Empty frames count, because they would make it endless. */
export const MAX_BLOCK_BYTES = 65_536;
export const MAX_BLOCK_FRAMES = 64;

/** Joins HEADERS and CONTINUATION (RFC 9113 section 4.3). Holds at most {@link MAX_BLOCK_BYTES}. */
export class HeaderBlock {
  /** The stream of the block that is not complete; 0 if there is none. Only its CONTINUATION frames may come. */
  stream = 0;
  endStream = false;
  #parts: Uint8Array[] = [];
  #bytes = 0;

  begin(stream: number, endStream: boolean): void {
    this.stream = stream;
    this.endStream = endStream;
  }

  /**
   * Adds a part. Returns the whole block if it is the last part, `undefined` if more follow, and false if the block is too large. The result is
   * valid as long as the part.
   */
  add(part: Uint8Array, isLast: boolean): Uint8Array | undefined | false {
    if (isLast && this.#parts.length === 0) {
      this.stream = 0;
      return part;
    }
    this.#bytes += part.length;
    if (this.#bytes > MAX_BLOCK_BYTES || this.#parts.length >= MAX_BLOCK_FRAMES) {
      this.clear();
      return false;
    }
    // A copy, so that no bytes of a read are held for a block that is never complete.
    this.#parts.push(part.slice());
    if (!isLast) return undefined;
    const whole = new Uint8Array(this.#bytes);
    let at = 0;
    for (const one of this.#parts) {
      whole.set(one, at);
      at += one.length;
    }
    this.clear();
    return whole;
  }

  clear(): void {
    this.stream = 0;
    this.#parts = [];
    this.#bytes = 0;
  }
}
