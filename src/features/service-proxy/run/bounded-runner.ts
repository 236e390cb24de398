import { Dirty, sleep } from "#base/async";
import { type Clock, systemClock } from "#base/clock";
import { ExpectedError } from "#base/errors";

/** Pauses after failures in a row, milliseconds; then `retryMs` (spec service-proxy 2.9). */
const RETRIES_MS = [100, 1000, 5000];

export interface BoundedRunnerOptions {
  /** From the end of a run to the start of the next, milliseconds. 0 and more. */
  readonly minMs: number;
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
    const { minMs, maxMs, retryMs } = this.#options;
    let failures = 0;
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
      await sleep(minMs, { signal, clock: this.#clock }).catch(() => undefined);
      const pauseMs = failures === 0 ? maxMs : (RETRIES_MS[failures - 1] ?? retryMs);
      await this.#dirty.wait({ atMostMs: Math.max(0, pauseMs - minMs), signal });
    }
  }
}
