/** Kept for the next tunnels rather than left to the garbage collector: at most this many buffers. */
const MAX_SPARE = 256;

/** Buffers that sockets read into again and again. Whoever still has bytes of one in a queue keeps it and does not give it back. */
export class BufferPool {
  readonly #bytes: number;
  readonly #spare: Uint8Array[] = [];

  /** `bytes` is the size of each. */
  constructor(bytes: number) {
    this.#bytes = bytes;
  }

  /** How many lie ready. */
  get spare(): number {
    return this.#spare.length;
  }

  take(): Uint8Array {
    // Zeroed memory that nobody has written to is no memory yet: an idle tunnel costs a page or two, not the whole buffer.
    return this.#spare.pop() ?? Buffer.alloc(this.#bytes);
  }

  giveBack(buffer: Uint8Array): void {
    if (buffer.length === this.#bytes && this.#spare.length < MAX_SPARE) this.#spare.push(buffer);
  }
}
