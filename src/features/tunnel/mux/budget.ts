/** The bytes that all connections of this process may hold in queues (docs/spec/tunnel.md#8.8). */
export class BufferBudget {
  readonly #maxBytes: number;
  readonly #waiting = new Set<() => void>();
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
    for (const resume of waiting) resume();
  }

  /** Calls `resume` once, when the process holds no more than `maxBytes`. Each paused reader waits here once. */
  whenBelowLimit(resume: () => void): void {
    this.#waiting.add(resume);
  }

  /** Removes a waiting reader. */
  forget(resume: () => void): void {
    this.#waiting.delete(resume);
  }
}
