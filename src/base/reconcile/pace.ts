import type { Clock } from "#base/clock";

/** The distance between passes. */
export interface PaceOptions {
  /** The average time from the end of a pass to the start of the next, in milliseconds; at least 0. */
  readonly minMs: number;
  /** The number of passes that may follow each other without a pause, after a rest of `burst` times `minMs`. Default 1. */
  readonly burst?: number;
}

/** Computes the pauses that keep passes apart. */
export class Pace {
  readonly #minMs: number;
  readonly #burst: number;
  readonly #clock: Clock;
  /** The number of passes that need no pause, and the time at which it was computed. */
  #credit: { readonly passes: number; readonly at: number };

  constructor({ minMs, burst = 1 }: PaceOptions = { minMs: 0 }, clock: Clock) {
    this.#minMs = minMs;
    this.#burst = burst;
    this.#clock = clock;
    this.#credit = { passes: burst, at: clock.monotonic() };
  }

  /** The pause before the next pass, in milliseconds. To be called at the end of each pass: the pause begins then, also if wakes came during it. */
  restMs(): number {
    if (this.#minMs === 0) return 0;
    const now = this.#clock.monotonic();
    const earned = (now - this.#credit.at) / this.#minMs;
    this.#credit = { passes: Math.min(this.#burst, this.#credit.passes + earned) - 1, at: now };
    return Math.max(0, (1 - Math.max(0, this.#credit.passes)) * this.#minMs);
  }
}
