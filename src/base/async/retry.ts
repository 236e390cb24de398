import { type Clock, systemClock } from "#base/clock";
import type { Backoff } from "./backoff.ts";
import { type AbortOptions, sleep } from "./sleep.ts";

export interface RetryOptions extends AbortOptions {
  /** Gives the pauses after failures in a row. */
  readonly backoff: Backoff;
  /** Returns true if a later try can succeed. A failure for which this is false ends the tries. */
  readonly isPassing: (error: unknown) => boolean;
  /** The maximum number of tries. Default: no limit. */
  readonly maxTries?: number;
  /** A failure this long after the first try began ends the tries, in milliseconds. Default: no limit. */
  readonly limitMs?: number;
  /** Called for each failure that is followed by a try, before the pause of `retryInMs` milliseconds. */
  readonly onFailure?: (error: unknown, retryInMs: number) => void;
  /** Default: the system's clock. */
  readonly clock?: Clock;
}

/**
 * Runs `work` until it succeeds, and resolves with its value. Rejects with the last failure when that is final or a limit is reached, and with
 * the signal's reason when the signal aborts.
 */
export async function retry<T>(work: () => Promise<T>, options: RetryOptions): Promise<T> {
  const { signal, backoff, clock = systemClock } = options;
  const { maxTries = Number.POSITIVE_INFINITY, limitMs = Number.POSITIVE_INFINITY } = options;
  const startedMs = clock.monotonic();
  for (let tries = 1; ; tries += 1) {
    signal?.throwIfAborted();
    try {
      return await work();
    } catch (error) {
      signal?.throwIfAborted();
      if (!options.isPassing(error) || tries >= maxTries || clock.monotonic() - startedMs >= limitMs) throw error;
      const retryInMs = Math.round(backoff.next());
      options.onFailure?.(error, retryInMs);
      await sleep(retryInMs, { signal, clock });
    }
  }
}
