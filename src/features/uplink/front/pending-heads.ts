/** A connection that owes a request. */
export interface Pending {
  evict(): void;
}

/** Connections without a complete head, oldest first: when there are too many, the oldest makes room (spec uplink-proxy 9.3). */
export class PendingHeads {
  readonly #limit: () => number;
  readonly #waiting = new Set<Pending>();

  constructor(limit: () => number) {
    this.#limit = limit;
  }

  get size(): number {
    return this.#waiting.size;
  }

  add(connection: Pending): void {
    this.#waiting.add(connection);
    for (const oldest of this.#waiting) {
      if (this.#waiting.size <= this.#limit()) return;
      // It would take itself out too; but what does not must not keep its place.
      this.#waiting.delete(oldest);
      oldest.evict();
    }
  }

  delete(connection: Pending): void {
    this.#waiting.delete(connection);
  }

  /** All of them. */
  [Symbol.iterator](): Iterator<Pending> {
    return [...this.#waiting][Symbol.iterator]();
  }
}
