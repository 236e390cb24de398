import { Dirty, pause } from "#base/async";
import { type Clock, systemClock } from "#base/clock";
import { ExpectedError } from "#base/errors";

/** Pauses after the first three failures in a row, in milliseconds; later pauses are `retryMs` (docs/spec/service-proxy.md#2.9). */
const RETRIES_MS = [100, 1000, 5000];

export interface BoundedRunnerOptions {
  /** The average time from the end of a run to the start of the next, in milliseconds; at least 0. */
  readonly minMs: number;
  /** The number of runs that may follow each other without a pause, after a rest of `burst` times `minMs`. Default 1. */
  readonly burst?: number;
  /** Longest time without a run, in milliseconds. */
  readonly maxMs: number;
  /** Pause after more than three failures in a row, in milliseconds. */
  readonly retryMs: number;
  readonly clock?: Clock;
}

/**
 * Runs work on request, at a bounded rate. The first request after a pause runs at once; all requests during a run or a pause
 * cause one run. A failed run is repeated without a request.
 */
export class BoundedRunner {
  readonly #options: BoundedRunnerOptions;
  readonly #clock: Clock;
  readonly #dirty: Dirty;

  constructor(options: BoundedRunnerOptions) {
    this.#options = options;
    this.#clock = options.clock ?? systemClock;
    this.#dirty = new Dirty(this.#clock);
  }

  /** Requests a run. */
  request(): void {
    this.#dirty.mark();
  }

  /** Runs `work` on request until the signal aborts. Rejects with errors that are not an {@link ExpectedError}. */
  async run(work: () => Promise<void>, { signal }: { readonly signal: AbortSignal }): Promise<void> {
    const { minMs, maxMs, retryMs, burst = 1 } = this.#options;
    let failures = 0;
    /** The number of runs that need no pause, and the time at which it was computed. */
    let credit = { runs: burst, at: this.#clock.monotonic() };
    await this.#dirty.wait({ atMostMs: maxMs, signal });
    while (!signal.aborted) {
      try {
        await work();
        failures = 0;
      } catch (error) {
        if (signal.aborted) return;
        if (!(error instanceof ExpectedError)) throw error;
        failures += 1;
      }
      // The pause begins at the end of a run, also if requests arrived during the run.
      const now = this.#clock.monotonic();
      const earned = minMs === 0 ? burst : (now - credit.at) / minMs;
      credit = { runs: Math.min(burst, credit.runs + earned) - 1, at: now };
      const restMs = Math.max(0, (1 - Math.max(0, credit.runs)) * minMs);
      await pause(restMs, { signal, clock: this.#clock });
      const pauseMs = failures === 0 ? maxMs : (RETRIES_MS[failures - 1] ?? retryMs);
      await this.#dirty.wait({ atMostMs: Math.max(0, pauseMs - restMs), signal });
    }
  }
}
