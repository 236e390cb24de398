import { type Entry, LinkedSet } from "#base/collections";

/** A connection without a complete head. */
export interface Pending {
  evict(): void;
  /** True if the connection is idle after an earlier answer. Connections that never had an answer are closed first. */
  readonly isKept?: boolean;
}

interface Waiting {
  readonly connection: Pending;
  entry: Entry | undefined;
}

/** Connections without a complete head, oldest first: when there are too many, the oldest is closed (docs/spec/uplink-proxy.md#9.3). */
export class PendingHeads {
  readonly #limit: () => number;
  readonly #waiting = new LinkedSet<Waiting>();

  constructor(limit: () => number) {
    this.#limit = limit;
  }

  get size(): number {
    return this.#waiting.size;
  }

  /** The entry is removed when the head is complete, or the connection ends. */
  add(connection: Pending): Entry {
    const waiting: Waiting = { connection, entry: undefined };
    const entry = this.#waiting.add(waiting);
    waiting.entry = entry;
    while (this.#waiting.size > this.#limit()) this.#waiting.shift()?.connection.evict();
    return entry;
  }

  /** Closes the oldest connection that never had an answer, or else the oldest one. False if there is no connection. */
  evictOldest(): boolean {
    let found: Waiting | undefined;
    for (const waiting of this.#waiting) {
      if (waiting.connection.isKept !== true) {
        found = waiting;
        break;
      }
      found ??= waiting;
    }
    found?.entry?.remove();
    found?.connection.evict();
    return found !== undefined;
  }

  /** All of them. */
  *[Symbol.iterator](): Iterator<Pending> {
    for (const { connection } of this.#waiting) yield connection;
  }
}
