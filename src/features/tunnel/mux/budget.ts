/** A reader that is paused because the process holds too many bytes. */
export interface PausedReader {
  /** The process holds fewer bytes than its limit. */
  onBelowLimit(): void;
}

/** The bytes that all connections of this process may hold in queues (docs/spec/tunnel.md#8.8). */
export class BufferBudget {
  readonly #maxBytes: number;
  readonly #waiting = new Set<PausedReader>();
  #used = 0;

  /** `maxBytes`: above this limit new dials fail, and reading pauses until fewer bytes are held. */
  constructor(maxBytes: number) {
    this.#maxBytes = maxBytes;
  }

  /** Bytes held now. */
  get used(): number {
    return this.#used;
  }

  get isOver(): boolean {
    return this.#used > this.#maxBytes;
  }

  add(bytes: number): void {
    this.#used += bytes;
  }

  remove(bytes: number): void {
    this.#used -= bytes;
    if (this.#waiting.size === 0 || this.isOver) return;
    const waiting = [...this.#waiting];
    this.#waiting.clear();
    for (const reader of waiting) reader.onBelowLimit();
  }

  /** Calls `onBelowLimit` once, when the process holds no more than `maxBytes`. Each paused reader waits here once. */
  whenBelowLimit(reader: PausedReader): void {
    this.#waiting.add(reader);
  }

  /** Removes a waiting reader. */
  forget(reader: PausedReader): void {
    this.#waiting.delete(reader);
  }
}
