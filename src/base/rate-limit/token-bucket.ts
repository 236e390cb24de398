import { type AbortOptions, sleep } from "#base/async";
import { type Clock, systemClock } from "#base/clock";

/** How fast a bucket refills and how much it holds. */
export interface TokenBucketOptions {
  /** Tokens added a second; above 0. */
  readonly ratePerSecond: number;
  /** The most tokens that can be saved up; at least 1. The bucket starts full. */
  readonly burst: number;
  /** Default: the real time. */
  readonly clock?: Clock;
}

/** A rate limit: `burst` at once, then `ratePerSecond`. Reservations are served in order; time is the monotonic one. */
export class TokenBucket {
  readonly #rate: number;
  readonly #burst: number;
  readonly #clock: Clock;
  #tokens: number;
  #at: number;

  /** Throws `RangeError` for a rate that is not above 0 or a burst below 1. */
  constructor(options: TokenBucketOptions) {
    if (!(options.ratePerSecond > 0) || !(options.burst >= 1)) {
      throw new RangeError(
        `a token bucket needs a rate above 0 and a burst of at least 1, not ${options.ratePerSecond} and ${options.burst}`,
      );
    }
    this.#rate = options.ratePerSecond;
    this.#burst = options.burst;
    this.#clock = options.clock ?? systemClock;
    this.#tokens = options.burst;
    this.#at = this.#clock.monotonic();
  }

  /** Takes one token if there is one: for callers that refuse excess. */
  tryTake(): boolean {
    this.#refill();
    if (this.#tokens < 1) return false;
    this.#tokens -= 1;
    return true;
  }

  /** Takes one token, on credit if need be, and returns after how many milliseconds it may be used (0: now). */
  reserve(): number {
    this.#refill();
    this.#tokens -= 1;
    return this.#tokens >= 0 ? 0 : (-this.#tokens / this.#rate) * 1000;
  }

  /** Gives a reserved token back that will not be used. */
  refund(): void {
    this.#tokens = Math.min(this.#burst, this.#tokens + 1);
  }

  /** Resolves when a token may be used. Rejects with the signal's reason when it aborts first; the token is given back. */
  async take(options: AbortOptions = {}): Promise<void> {
    options.signal?.throwIfAborted();
    const waitMs = this.reserve();
    if (waitMs === 0) return;
    try {
      await sleep(waitMs, { signal: options.signal, clock: this.#clock });
    } catch (error) {
      this.refund();
      throw error;
    }
  }

  #refill(): void {
    const now = this.#clock.monotonic();
    this.#tokens = Math.min(this.#burst, this.#tokens + ((now - this.#at) / 1000) * this.#rate);
    this.#at = now;
  }
}
