import { Roster, type Seat } from "#base/roster";
import type { Clock } from "./system-clock.ts";

/** Lengths of waiting that have a queue; more than that go to the clock below one by one. */
const MAX_QUEUES = 16;

interface Waiter {
  /** Monotonic milliseconds. */
  readonly at: number;
  /** Of those that are due at the same time the one that began to wait first is first. */
  readonly order: number;
  readonly callback: () => void;
}

/**
 * A clock whose waits share one timer of the clock below, which is set for the first that is due: for waits that begin some thousand times a
 * second, most of them equally long and nearly all cancelled. Nothing waits below when nobody waits here. Waits with `unref` go to the
 * clock below as they are.
 */
export class PooledClock implements Clock {
  readonly #clock: Clock;
  /** By length: each in the order in which they are due. */
  readonly #queues = new Map<number, Roster<Waiter>>();
  #size = 0;
  #order = 0;
  /** When the timer below is due. */
  #armedAt = Number.POSITIVE_INFINITY;
  #disarm: (() => void) | undefined;

  constructor(clock: Clock) {
    this.#clock = clock;
  }

  now(): number {
    return this.#clock.now();
  }

  monotonic(): number {
    return this.#clock.monotonic();
  }

  after(delayMs: number, callback: () => void, options: { readonly unref?: boolean } = {}): () => void {
    const queue = options.unref === true ? undefined : this.#queueOf(delayMs);
    if (queue === undefined) return this.#clock.after(delayMs, callback, options);
    const at = this.#clock.monotonic() + Math.max(0, delayMs);
    this.#order += 1;
    const seat = queue.add({ at, order: this.#order, callback });
    this.#size += 1;
    if (at < this.#armedAt) this.#arm(at, delayMs);
    return () => this.#cancel(seat);
  }

  #cancel(seat: Seat): void {
    if (!seat.leave()) return;
    this.#size -= 1;
    if (this.#size > 0) return;
    this.#disarm?.();
    this.#disarm = undefined;
    this.#armedAt = Number.POSITIVE_INFINITY;
  }

  #queueOf(delayMs: number): Roster<Waiter> | undefined {
    const known = this.#queues.get(delayMs);
    if (known !== undefined) return known;
    if (this.#queues.size >= MAX_QUEUES && !this.#dropQueue()) return undefined;
    const made = new Roster<Waiter>();
    this.#queues.set(delayMs, made);
    return made;
  }

  /** Makes room for another length; false where somebody waits in each queue. */
  #dropQueue(): boolean {
    for (const [delayMs, { size }] of this.#queues) if (size === 0) return this.#queues.delete(delayMs);
    return false;
  }

  #arm(at: number, delayMs: number): void {
    this.#disarm?.();
    this.#armedAt = at;
    this.#disarm = this.#clock.after(delayMs, this.#fire);
  }

  readonly #fire = (): void => {
    // Timers below may be a fraction of a millisecond early.
    const until = Math.max(this.#clock.monotonic(), this.#armedAt);
    this.#disarm = undefined;
    this.#armedAt = Number.POSITIVE_INFINITY;
    try {
      for (let queue = this.#first(); queue !== undefined; queue = this.#first()) {
        if ((queue.first?.at ?? until) > until) break;
        this.#size -= 1;
        queue.shift()?.callback();
      }
    } finally {
      // Also when one of them has thrown.
      const at = this.#first()?.first?.at ?? Number.POSITIVE_INFINITY;
      if (at < this.#armedAt) this.#arm(at, Math.max(0, at - this.#clock.monotonic()));
    }
  };

  /** The queue whose first waiter is due before all others. */
  #first(): Roster<Waiter> | undefined {
    let best: Roster<Waiter> | undefined;
    for (const queue of this.#queues.values()) {
      if (queue.first !== undefined && (best?.first === undefined || isBefore(queue.first, best.first))) best = queue;
    }
    return best;
  }
}

function isBefore(a: Waiter, b: Waiter): boolean {
  return a.at < b.at || (a.at === b.at && a.order < b.order);
}
