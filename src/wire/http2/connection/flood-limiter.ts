import type { Clock } from "#base/clock";

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
    readonly clock: Pick<Clock, "monotonic">;
  }) {
    this.#burst = options.burst;
    this.#perSecond = options.perSecond;
    this.#clock = options.clock;
    this.#tokens = options.burst;
    this.#at = this.#clock.monotonic();
  }

  /** Returns false if there were too many. */
  spend(tokens = 1): boolean {
    this.#tokens -= tokens;
    return this.#tokens >= 0 || this.#refill();
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
