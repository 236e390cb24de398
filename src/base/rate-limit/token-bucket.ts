import { type AbortOptions, sleep } from "#base/async";
import { type Clock, systemClock } from "#base/clock";

/** The refill rate and the size of a bucket. */
export interface TokenBucketOptions {
  /** Tokens added a second; above 0. */
  readonly ratePerSecond: number;
  /** The maximum number of tokens in the bucket; at least 1. The bucket starts full. */
  readonly burst: number;
  /** Default: the system's clock. */
  readonly clock?: Clock;
}

/** A rate limit: `burst` tokens at once, then `ratePerSecond`. Reservations are served in order. The bucket uses monotonic time. */
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

  /** Takes one token and returns true, or returns false if there is none: for callers that refuse excess. */
  tryTake(): boolean {
    this.#refill();
    if (this.#tokens < 1) return false;
    this.#tokens -= 1;
    return true;
  }

  /** Reserves one token, even if the bucket is empty, and returns the milliseconds until it may be used (0: now). */
  reserve(): number {
    this.#refill();
    this.#tokens -= 1;
    return this.#tokens >= 0 ? 0 : (-this.#tokens / this.#rate) * 1000;
  }

  /** Returns a reserved token that will not be used. */
  refund(): void {
    this.#tokens = Math.min(this.#burst, this.#tokens + 1);
  }

  /** Resolves when a token may be used. Rejects with the signal's reason when the signal aborts first; the token is returned then. */
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
