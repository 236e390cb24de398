/**
 * Looking again until something is so, for what gives no sign of its own: processes, sockets, a cluster that settles.
 *
 * Owns: {@link poll}. Refuses to know: what is looked at.
 *
 * ```ts
 * const left = await poll(() => processes(), { until: (all) => all.length === 0, everyMs: 20, deadlineMs: 5000 });
 * ```
 */
import { type AbortOptions, sleep } from "#base/async";
import { type Clock, systemClock } from "#base/clock";

/** How to poll. */
export interface PollOptions<T> extends AbortOptions {
  /** Whether what was seen is what is waited for. */
  readonly until: (seen: T) => boolean;
  /** The pause between two looks, milliseconds. */
  readonly everyMs: number;
  /** No new look is taken after so long, milliseconds. Default: never given up. */
  readonly deadlineMs?: number;
  readonly clock?: Clock;
}

/**
 * Looks at once, then again and again. Resolves with what was seen last: what is waited for, or, when the deadline has
 * passed, what there is instead. Rejects with what `look` rejects with, and with the signal's reason.
 */
export async function poll<T>(look: () => T | Promise<T>, options: PollOptions<T>): Promise<T> {
  const { until, everyMs, deadlineMs = Number.POSITIVE_INFINITY, clock = systemClock, signal } = options;
  const deadline = clock.monotonic() + deadlineMs;
  for (;;) {
    signal?.throwIfAborted();
    const seen = await look();
    if (until(seen) || clock.monotonic() >= deadline) return seen;
    await sleep(everyMs, { signal, clock });
  }
}
