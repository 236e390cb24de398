import { Backoff } from "#base/async";
import type { Clock } from "#base/clock";
import { TokenBucket } from "#base/rate-limit";

/** The rate of retries of a {@link WorkQueue} are spread. */
export interface RetryOptions {
  /** The delay before the first retry of a key, in milliseconds. Default 5; it doubles with each failure. */
  readonly initialMs?: number;
  /** The maximum delay of a key, in milliseconds. Default 1,000,000 (client-go's 1000 s). */
  readonly maxMs?: number;
  /** Share of the delay that is random, 0 to 1. Default 0.1. */
  readonly jitter?: number;
  /** The maximum number of retries a second, of all keys together. Default 10. */
  readonly ratePerSecond?: number;
  /** Retries that may be made at once. Default 100. */
  readonly burst?: number;
  readonly random?: () => number;
}

/** Delays of retries: exponential for each key, and a token bucket over all of them; the longer delay counts. */
export class RetryLimiter {
  readonly #backoff: Backoff;
  readonly #bucket: TokenBucket;
  readonly #failures = new Map<string, number>();

  constructor(options: RetryOptions & { readonly clock: Clock }) {
    this.#backoff = new Backoff({
      initialMs: options.initialMs ?? 5,
      maxMs: options.maxMs ?? 1_000_000,
      jitter: options.jitter ?? 0.1,
      random: options.random ?? Math.random,
    });
    this.#bucket = new TokenBucket({
      ratePerSecond: options.ratePerSecond ?? 10,
      burst: options.burst ?? 100,
      clock: options.clock,
    });
  }

  /** Counts one failure of the key and returns the delay of its retry, in milliseconds. */
  when(key: string): number {
    const failures = this.#failures.get(key) ?? 0;
    this.#failures.set(key, failures + 1);
    return Math.max(this.#backoff.delay(failures), this.#bucket.reserve());
  }

  /** The number of failures of the key since it was last forgotten. */
  failures(key: string): number {
    return this.#failures.get(key) ?? 0;
  }

  /** Call this when the key succeeded: its next failure counts as its first. */
  forget(key: string): void {
    this.#failures.delete(key);
  }
}
