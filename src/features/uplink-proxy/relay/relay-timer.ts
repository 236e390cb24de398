import type { Clock } from "#base/clock";
import { type Entry, LinkedSet } from "#base/collections";

/** The accuracy of limits, in milliseconds: a limit of 30 s ends a tunnel after 30 to 31 s. */
const TICK_MS = 500;

/** An object that the timer checks. */
export interface TimedRelay {
  /** Called each half second with the time of {@link RelayTimer.now}, which is exact then. */
  check(now: number): void;
}

/**
 * One coarse timer for all tunnels of a thread, instead of several timers for each tunnel. `now` changes in steps, so that noting the time
 * of a byte needs no call of the clock; it may be up to half a second late, which {@link RelayTimer.hasPassed} takes into account.
 */
export class RelayTimer {
  readonly #clock: Clock;
  readonly #relays = new LinkedSet<TimedRelay>();
  #now: number;
  #cancel: (() => void) | undefined;

  constructor(clock: Clock) {
    this.#clock = clock;
    this.#now = clock.monotonic();
  }

  /** Monotonic milliseconds of the last step. */
  get now(): number {
    return this.#now;
  }

  /** The exact time. It calls the clock, so it is meant for rare events. */
  exactNow(): number {
    return this.#clock.monotonic();
  }

  get size(): number {
    return this.#relays.size;
  }

  /** True once `limitMs` have certainly passed since an event whose time was noted as `sinceMs` from `now`. */
  hasPassed(sinceMs: number, limitMs: number): boolean {
    return this.#now - sinceMs >= limitMs + TICK_MS;
  }

  /** Checks the relay at each step until {@link RelayTimer.remove}. */
  add(relay: TimedRelay): Entry {
    if (this.#relays.size === 0) {
      this.#now = this.#clock.monotonic();
      this.#arm();
    }
    return this.#relays.add(relay);
  }

  remove(entry: Entry): void {
    entry.remove();
    if (this.#relays.size > 0) return;
    this.#cancel?.();
    this.#cancel = undefined;
  }

  #arm(): void {
    this.#cancel = this.#clock.after(
      TICK_MS,
      () => {
        this.#arm();
        this.#now = this.#clock.monotonic();
        for (const relay of this.#relays) relay.check(this.#now);
      },
      { unref: true },
    );
  }
}
