/**
 * Reads TLS's length-prefixed structures (RFC 8446 section 3). A read beyond the end makes the reader
 * `failed`; after that all reads return zeros and empty views, so that a parser checks only once, at its end.
 */
export class ByteReader {
  readonly #bytes: Uint8Array;
  #at = 0;
  #failed = false;

  constructor(bytes: Uint8Array) {
    this.#bytes = bytes;
  }

  /** A read went past the end. */
  get failed(): boolean {
    return this.#failed;
  }

  /** No byte is left. Also true after a failure, so that loops end. */
  get isAtEnd(): boolean {
    return this.#failed || this.#at === this.#bytes.length;
  }

  /** A big-endian number of 1 to 3 bytes. */
  number(size: 1 | 2 | 3): number {
    return this.take(size).reduce((value, byte) => value * 256 + byte, 0);
  }

  /** The next bytes, as a view. */
  take(length: number): Uint8Array {
    const end = this.#at + length;
    if (this.#failed || end > this.#bytes.length) {
      this.#failed = true;
      return new Uint8Array(0);
    }
    const view = this.#bytes.subarray(this.#at, end);
    this.#at = end;
    return view;
  }

  /** A vector whose length is in the `size` bytes before it. */
  vector(size: 1 | 2 | 3): ByteReader {
    return new ByteReader(this.take(this.number(size)));
  }

  /** The remaining bytes, as a view. */
  rest(): Uint8Array {
    return this.take(this.#bytes.length - this.#at);
  }
}
