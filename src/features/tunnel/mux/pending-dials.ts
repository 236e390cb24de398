import type { Clock } from "#base/clock";
import { DrainedMap } from "#base/collections";
import type { TunnelId } from "#wire/konnectivity";
import { MAX_TOMBSTONES, TOMBSTONE_MS } from "./options.ts";

/**
 * The dials of one link that wait for an answer, and the ids of abandoned dials whose answer may still arrive (tombstones). An id of
 * either kind cannot be used for a new dial, so that an answer belongs to exactly one dial.
 */
export class PendingDials<Waiter> {
  readonly #clock: Clock;
  readonly #waiting = new DrainedMap<TunnelId, Waiter>();
  /** When each tombstone expires, `Clock.monotonic` milliseconds, in that order. */
  readonly #tombstones = new Map<TunnelId, number>();

  constructor(clock: Clock) {
    this.#clock = clock;
  }

  /** Number of dials that wait for an answer. */
  get size(): number {
    return this.#waiting.size;
  }

  /** Adds a dial. Returns false if the id is in use. */
  add(random: TunnelId, waiter: Waiter): boolean {
    this.#forget();
    if (this.#waiting.has(random) || this.#tombstones.has(random)) return false;
    this.#waiting.set(random, waiter);
    return true;
  }

  /** Removes the dial or tombstone and returns the waiter; `undefined` if no waiter is known. */
  answer(random: TunnelId): Waiter | undefined {
    const waiter = this.#waiting.get(random);
    this.#waiting.delete(random);
    this.#tombstones.delete(random);
    return waiter;
  }

  /** Replaces the waiter's dial by a tombstone. Returns false if the waiter has no pending dial of this id. */
  giveUp(random: TunnelId, waiter: Waiter): boolean {
    if (this.#waiting.get(random) !== waiter) return false;
    this.#waiting.delete(random);
    this.#tombstones.set(random, this.#clock.monotonic() + TOMBSTONE_MS);
    this.#forget();
    return true;
  }

  /** Empties the table and returns all waiters. */
  clear(): readonly Waiter[] {
    const waiters = this.#waiting.values();
    this.#waiting.clear();
    this.#tombstones.clear();
    return waiters;
  }

  #forget(): void {
    const now = this.#clock.monotonic();
    for (const [random, until] of this.#tombstones) {
      if (until > now && this.#tombstones.size <= MAX_TOMBSTONES) return;
      this.#tombstones.delete(random);
    }
  }
}
