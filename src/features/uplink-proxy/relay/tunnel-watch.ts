import type { Clock } from "#base/clock";
import { type Entry, LinkedSet } from "#base/collections";

/** How exactly limits are kept: a limit of 30 s ends a tunnel after 30 to 31 s, milliseconds. */
const TICK_MS = 500;

/** What the watch looks at. */
export interface Watched {
  /** Called each half second with the time of {@link TunnelWatch.now}, which is exact then. */
  check(now: number): void;
}

/**
 * One coarse timer for all tunnels of a thread, instead of some for each. `now` moves in steps, so that noting that a byte came costs
 * nothing; it may be up to half a second behind, which {@link TunnelWatch.hasPassed} allows for.
 */
export class TunnelWatch {
  readonly #clock: Clock;
  readonly #watched = new LinkedSet<Watched>();
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

  /** Not behind, but a call to the clock: for what is noted seldom. */
  exactNow(): number {
    return this.#clock.monotonic();
  }

  get size(): number {
    return this.#watched.size;
  }

  /** True once `limitMs` have certainly passed since something that was noted with `now` as `sinceMs`. */
  hasPassed(sinceMs: number, limitMs: number): boolean {
    return this.#now - sinceMs >= limitMs + TICK_MS;
  }

  /** Looks at it until {@link TunnelWatch.remove}. */
  add(watched: Watched): Entry {
    if (this.#watched.size === 0) {
      this.#now = this.#clock.monotonic();
      this.#arm();
    }
    return this.#watched.add(watched);
  }

  remove(entry: Entry): void {
    entry.remove();
    if (this.#watched.size > 0) return;
    this.#cancel?.();
    this.#cancel = undefined;
  }

  #arm(): void {
    this.#cancel = this.#clock.after(
      TICK_MS,
      () => {
        this.#arm();
        this.#now = this.#clock.monotonic();
        for (const watched of this.#watched) watched.check(this.#now);
      },
      { unref: true },
    );
  }
}
