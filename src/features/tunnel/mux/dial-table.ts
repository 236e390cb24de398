import type { Clock } from "#base/clock";
import { DrainedMap } from "#base/collections";
import type { TunnelId } from "#wire/konnectivity";
import { MAX_TOMBSTONES, TOMBSTONE_MS } from "./options.ts";

/**
 * The dials of one link that wait for an answer, and those that were given up and may still get one. A dial id that stands
 * here cannot be used for another dial, so an answer always means one thing.
 */
export class DialTable<Waiter> {
  readonly #clock: Clock;
  readonly #waiting = new DrainedMap<TunnelId, Waiter>();
  /** By when they may be forgotten, in that order. */
  readonly #tombstones = new Map<TunnelId, number>();

  constructor(clock: Clock) {
    this.#clock = clock;
  }

  /** Dials that wait. */
  get size(): number {
    return this.#waiting.size;
  }

  /** False when the id is in use. */
  add(random: TunnelId, waiter: Waiter): boolean {
    this.#forget();
    if (this.#waiting.has(random) || this.#tombstones.has(random)) return false;
    this.#waiting.set(random, waiter);
    return true;
  }

  /** The dial's answer has come: who waits for it, if anyone does. */
  answer(random: TunnelId): Waiter | undefined {
    const waiter = this.#waiting.get(random);
    this.#waiting.delete(random);
    this.#tombstones.delete(random);
    return waiter;
  }

  /** The waiter gives its dial up. False when it no longer waits. */
  giveUp(random: TunnelId, waiter: Waiter): boolean {
    if (this.#waiting.get(random) !== waiter) return false;
    this.#waiting.delete(random);
    this.#tombstones.set(random, this.#clock.monotonic() + TOMBSTONE_MS);
    this.#forget();
    return true;
  }

  /** Empties the table; returns who waited. */
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
