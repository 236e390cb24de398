import { type AbortOptions, type Backoff, Dirty, type Marks, pause, unlessAborted } from "#base/async";
import { type Clock, systemClock } from "#base/clock";
import { ExpectedError } from "#base/errors";
import { Pace, type PaceOptions } from "./pace.ts";

/** The state that a loop reads, such as an informer: no pass begins before each was listed once. */
export interface LoopInput {
  /** Resolves when the input was listed once. Never rejects. */
  readonly synced: Promise<void>;
}

export interface LoopOptions {
  /** Longest time from the end of a pass to the next one, in milliseconds, unless the pass returns `againMs`. */
  readonly everyMs: number;
  /** Gives the pauses after failures in a row. Default: each pause is `everyMs`. */
  readonly backoff?: Backoff;
  /** Returns the milliseconds to wait after this failure; `undefined` means that the backoff decides. */
  readonly retryAfterMs?: (error: ExpectedError) => number | undefined;
  /** If true, a wake does not end the pause after a failure. Default false. */
  readonly keepsRetryPause?: boolean;
  /**
   * Inputs by name. What is missing from an input that was not listed looks like an object to remove, so no pass begins before all were listed.
   * From then on a pass may remove what is not wanted. Default: none.
   */
  readonly inputs?: Readonly<Record<string, LoopInput>>;
  /** Marked by what wakes the loop, if others do that. Default: a mark of the loop's own. */
  readonly dirty?: Dirty;
  /** Distance between passes. Default: a wake begins the next pass at once. */
  readonly pace?: PaceOptions;
  /** Time from a wake to its pass in which further wakes gather, in milliseconds. Not for the first pass. Default 0. */
  readonly gatherMs?: () => number;
  /** If true, the first pass waits for a wake, or for `everyMs`. Default: it begins at once. */
  readonly startsIdle?: boolean;
  /** Called for each failed pass. Absent: passes have no failures, and any error is a bug. */
  readonly onFailure?: (error: ExpectedError) => void;
  /** Default: the system's clock. */
  readonly clock?: Clock;
}

/** Options of a pass, and the wakes that it answers. */
export interface PassOptions extends Marks {
  /** Number of this pass, if it succeeds: failed ones are not counted. */
  readonly pass: number;
  readonly signal: AbortSignal;
}

/** The progress that a pass makes if it succeeds, for people and for tests that wait for it: `sync 12 done, wanted state of revision 40`. */
export function progressText({ pass, revision }: Pick<PassOptions, "pass" | "revision">): string {
  return `sync ${pass} done, wanted state of revision ${revision}`;
}

/** The time to the next pass, in milliseconds from the end of this one; a wake begins it earlier. */
export interface PassResult {
  readonly againMs: number;
}

/** The progress of a loop. */
export interface LoopProgress {
  /** Number of passes that have succeeded. */
  readonly passes: number;
  /** Number of failures since the last success. */
  readonly failures: number;
  /** Number of wakes before the last successful pass began: all that they announced was applied. */
  readonly revision: number;
  /** Number of wakes so far. The loop is behind while this is above `revision`. */
  readonly wanted: number;
  /** Reasons of the last pass that has begun. */
  readonly reasons: readonly string[];
  /** Names of the inputs that were not listed yet. */
  readonly awaits: readonly string[];
}

// biome-ignore lint/suspicious/noConfusingVoidType: a pass that follows the loop's own interval returns nothing
type Work = (options: PassOptions) => Promise<PassResult | void>;

/** A caller of {@link Loop.applied}. */
interface Waiter {
  readonly revision: number;
  readonly resolve: () => void;
}

/**
 * The loop of the suite. Events only wake it, with a reason; a pass reads the whole state, plans and applies. It also passes on a timer, because others
 * edit the same state, and after a failure.
 */
export class Loop {
  readonly #options: LoopOptions;
  readonly #clock: Clock;
  readonly #dirty: Dirty;
  readonly #awaits: Set<string>;
  readonly #waiters = new Set<Waiter>();
  #passes = 0;
  #failures = 0;
  #applied = 0;
  #reasons: readonly string[] = [];

  constructor(options: LoopOptions) {
    this.#options = options;
    this.#clock = options.clock ?? systemClock;
    this.#dirty = options.dirty ?? new Dirty(this.#clock);
    this.#awaits = new Set(Object.keys(options.inputs ?? {}));
  }

  /** Requests a pass, for a reason that is a constant of the program. Returns a revision for {@link Loop.applied}. */
  wake(reason: string): number {
    return this.#dirty.mark(reason);
  }

  get progress(): LoopProgress {
    return {
      passes: this.#passes,
      failures: this.#failures,
      revision: this.#applied,
      wanted: this.#dirty.revision,
      reasons: this.#reasons,
      awaits: [...this.#awaits],
    };
  }

  /** Resolves when a pass that began at this revision, or at a later one, has succeeded. Rejects with the signal's reason. */
  async applied(revision: number, options: AbortOptions = {}): Promise<void> {
    if (this.#passes > 0 && this.#applied >= revision) return;
    const done = Promise.withResolvers<void>();
    const waiter = { revision, resolve: done.resolve };
    this.#waiters.add(waiter);
    try {
      await unlessAborted(done.promise, options);
    } finally {
      this.#waiters.delete(waiter);
    }
  }

  /**
   * Passes until the signal aborts. A pass that throws an {@link ExpectedError} is reported to `onFailure` and repeated; any other error is a bug, and
   * rejects unless the signal has aborted. Call it once.
   */
  async run(work: Work, { signal }: { readonly signal: AbortSignal }): Promise<void> {
    const { everyMs, keepsRetryPause = false, startsIdle = false } = this.#options;
    const pace = new Pace(this.#options.pace, this.#clock);
    // Without inputs the first pass begins before this function returns.
    if (this.#awaits.size > 0) await this.#listed(signal);
    if (startsIdle) await this.#pause(everyMs, signal);
    while (!signal.aborted) {
      const failures = this.#failures;
      const pauseMs = await this.#pass(work, signal);
      if (signal.aborted) return;
      const restMs = pace.restMs();
      if (restMs > 0) await pause(restMs, { signal, clock: this.#clock });
      const leftMs = Math.max(0, pauseMs - restMs);
      if (keepsRetryPause && this.#failures > failures) await pause(leftMs, { signal, clock: this.#clock });
      else await this.#pause(leftMs, signal);
    }
  }

  /** Resolves when all inputs were listed, or when the signal aborts. */
  async #listed(signal: AbortSignal): Promise<void> {
    const inputs = Object.entries(this.#options.inputs ?? {});
    const all = inputs.map(async ([name, { synced }]) => {
      await synced;
      this.#awaits.delete(name);
    });
    try {
      await unlessAborted(Promise.all(all), { signal });
    } catch (error) {
      if (!signal.aborted) throw error;
    }
  }

  /** Makes a pass; resolves to the pause after it, in milliseconds. */
  async #pass(work: Work, signal: AbortSignal): Promise<number> {
    const { everyMs, backoff, onFailure, retryAfterMs } = this.#options;
    const marks = this.#dirty.take();
    this.#reasons = [...marks.reasons];
    try {
      const result = await work({ signal, pass: this.#passes + 1, ...marks });
      backoff?.reset();
      this.#succeeded(marks.revision);
      return result?.againMs ?? everyMs;
    } catch (error) {
      if (signal.aborted) return 0;
      if (!(error instanceof ExpectedError) || onFailure === undefined) throw error;
      this.#failures += 1;
      onFailure(error);
      return retryAfterMs?.(error) ?? backoff?.next() ?? everyMs;
    }
  }

  #succeeded(revision: number): void {
    this.#passes += 1;
    this.#failures = 0;
    this.#applied = revision;
    for (const waiter of this.#waiters) if (waiter.revision <= revision) waiter.resolve();
  }

  async #pause(atMostMs: number, signal: AbortSignal): Promise<void> {
    await this.#dirty.wait({ atMostMs, signal });
    const gatherMs = this.#options.gatherMs?.() ?? 0;
    if (gatherMs > 0) await pause(gatherMs, { signal, clock: this.#clock });
  }
}
