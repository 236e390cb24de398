import type { Clock } from "#base/clock";

/** The part of a burst that a new connection has at its start, whatever was used up before: a greeting consists of some frames. */
const LEAST_PART = 1 / 100;

/**
 * Counts frames that carry nothing. A peer may send `burst` of them at once and then `perSecond`; traffic in between earns more. The clock is
 * read only when the tokens are used up, so counting is one subtraction.
 */
export class FloodLimiter {
  readonly #burst: number;
  readonly #perSecond: number;
  readonly #clock: Pick<Clock, "monotonic">;
  #tokens: number;
  #at: number;

  constructor(options: {
    readonly burst: number;
    readonly perSecond: number;
    /** So much of the burst is used up, as the time in which it comes back, in milliseconds. Default 0. A hundredth of the burst is left at least. */
    readonly spentMs?: number;
    readonly clock: Pick<Clock, "monotonic">;
  }) {
    this.#burst = options.burst;
    this.#perSecond = options.perSecond;
    this.#clock = options.clock;
    const spent = ((options.spentMs ?? 0) / 1000) * options.perSecond;
    this.#tokens = Math.max(options.burst - spent, options.burst * LEAST_PART);
    this.#at = this.#clock.monotonic();
  }

  /** Returns false if there were too many. */
  spend(tokens = 1): boolean {
    this.#tokens -= tokens;
    return this.#tokens >= 0 || this.#refill();
  }

  /** The time in which what is used up of the burst comes back, in milliseconds. */
  get spentMs(): number {
    this.#refill();
    return Math.max(0, ((this.#burst - this.#tokens) / this.#perSecond) * 1000);
  }

  earn(tokens: number): void {
    this.#tokens = Math.min(this.#burst, this.#tokens + tokens);
  }

  #refill(): boolean {
    const now = this.#clock.monotonic();
    this.#tokens = Math.min(this.#burst, this.#tokens + ((now - this.#at) / 1000) * this.#perSecond);
    this.#at = now;
    return this.#tokens >= 0;
  }
}
