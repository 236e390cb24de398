import type { Clock } from "#base/clock";
import { ExpectedError } from "#base/errors";
import type { Backoff } from "./backoff.ts";
import { Dirty } from "./dirty.ts";

export interface RepeatOptions {
  /** The loop ends, without an error, when this signal aborts. */
  readonly signal: AbortSignal;
  /** Pause after a run, in milliseconds. */
  readonly everyMs: number;
  /** Gives the pauses after failures in a row. Default: each pause is `everyMs`. */
  readonly backoff?: Backoff;
  /** A mark ends the pause. */
  readonly dirty?: Dirty;
  /** The clock of the pauses if there is no `dirty`. Default: the system's clock. */
  readonly clock?: Clock;
  /** Called for each failed run. */
  readonly onFailure: (error: ExpectedError) => void;
  /** Returns the milliseconds to wait after this failure; `undefined` means that the backoff decides. */
  readonly retryAfterMs?: (error: ExpectedError) => number | undefined;
}

/**
 * Runs `work` again and again until the signal aborts. A run that throws an {@link ExpectedError} is reported to `onFailure` and repeated;
 * any other error is a bug, and rejects unless the signal has aborted.
 */
export async function repeat(work: () => Promise<void>, options: RepeatOptions): Promise<void> {
  const { signal, everyMs, backoff } = options;
  const dirty = options.dirty ?? new Dirty(options.clock);
  while (!signal.aborted) {
    let pauseMs = everyMs;
    try {
      await work();
      backoff?.reset();
    } catch (error) {
      if (signal.aborted) return;
      if (!(error instanceof ExpectedError)) throw error;
      options.onFailure(error);
      pauseMs = options.retryAfterMs?.(error) ?? backoff?.next() ?? everyMs;
    }
    await dirty.wait({ atMostMs: pauseMs, signal });
  }
}
