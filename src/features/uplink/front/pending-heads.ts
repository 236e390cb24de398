import { Roster, type Seat } from "#base/roster";

/** A connection that owes a request. */
export interface Pending {
  evict(): void;
}

/** Connections without a complete head, oldest first: when there are too many, the oldest makes room (spec uplink-proxy 9.3). */
export class PendingHeads {
  readonly #limit: () => number;
  readonly #waiting = new Roster<Pending>();

  constructor(limit: () => number) {
    this.#limit = limit;
  }

  get size(): number {
    return this.#waiting.size;
  }

  /** The seat is left when the head is complete, or the connection ends. */
  add(connection: Pending): Seat {
    const seat = this.#waiting.add(connection);
    while (this.#waiting.size > this.#limit()) this.#waiting.shift()?.evict();
    return seat;
  }

  /** All of them. */
  [Symbol.iterator](): Iterator<Pending> {
    return this.#waiting[Symbol.iterator]();
  }
}
