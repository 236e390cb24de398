import type { Clock } from "#base/clock";
import { type AbortOptions, sleep } from "./sleep.ts";

/** Options of polling. */
export interface PollOptions<T> extends AbortOptions {
  /** Returns true if a value ends the wait. */
  readonly until: (seen: T) => boolean;
  /** The pause between two reads, in milliseconds. */
  readonly everyMs: number;
  /** No read begins after this time, in milliseconds. Default: no limit. */
  readonly deadlineMs?: number;
  readonly clock: Clock;
}

/**
 * Reads at once, then repeatedly. Resolves with the last value: one that ends the wait or, after the deadline, any
 * other. Rejects as `look` does, and with the signal's reason.
 */
export async function poll<T>(look: () => T | Promise<T>, options: PollOptions<T>): Promise<T> {
  const { until, everyMs, deadlineMs = Number.POSITIVE_INFINITY, clock, signal } = options;
  const deadline = clock.monotonic() + deadlineMs;
  for (;;) {
    signal?.throwIfAborted();
    const seen = await look();
    if (until(seen) || clock.monotonic() >= deadline) return seen;
    await sleep(everyMs, { signal, clock });
  }
}
