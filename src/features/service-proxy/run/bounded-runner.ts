import { Dirty, sleep } from "#base/async";
import { type Clock, systemClock } from "#base/clock";
import { ExpectedError } from "#base/errors";

/** Pauses after failures in a row, milliseconds; then `retryMs` (docs/spec/service-proxy.md#2.9). */
const RETRIES_MS = [100, 1000, 5000];

export interface BoundedRunnerOptions {
  /** From the end of a run to the start of the next, milliseconds, on average. 0 and more. */
  readonly minMs: number;
  /** So many runs may follow each other at once, where none was for as many times `minMs`. Default 1. */
  readonly burst?: number;
  /** At least one run in so long, milliseconds. */
  readonly maxMs: number;
  /** After many failures, milliseconds. */
  readonly retryMs: number;
  readonly clock?: Clock;
}

/**
 * Runs something when asked to, not too often and not too rarely: the first request after a pause runs at once, any number of them
 * meanwhile are one run. A failed run is tried again by itself.
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

  /** Asks for a run. */
  request(): void {
    this.#dirty.mark();
  }

  /** Until the signal aborts; the first run is at the first request. Rejects for what is no {@link ExpectedError}: a bug. */
  async run(work: () => Promise<void>, { signal }: { readonly signal: AbortSignal }): Promise<void> {
    const { minMs, maxMs, retryMs, burst = 1 } = this.#options;
    let failures = 0;
    /** Runs that may be made at once, and since when. */
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
      // The pause counts from the end of a run, whatever is asked for meanwhile.
      const now = this.#clock.monotonic();
      const earned = minMs === 0 ? burst : (now - credit.at) / minMs;
      credit = { runs: Math.min(burst, credit.runs + earned) - 1, at: now };
      const restMs = Math.max(0, (1 - Math.max(0, credit.runs)) * minMs);
      await sleep(restMs, { signal, clock: this.#clock }).catch(() => undefined);
      const pauseMs = failures === 0 ? maxMs : (RETRIES_MS[failures - 1] ?? retryMs);
      await this.#dirty.wait({ atMostMs: Math.max(0, pauseMs - restMs), signal });
    }
  }
}
