import { Backoff, type Dirty } from "#base/async";
import type { Clock } from "#base/clock";
import type { HealthPart } from "#base/health";
import { Loop, type LoopInput, type PassOptions, progressText } from "./loop.ts";

export interface ReconcileOptions {
  /** Marked by every event that may have changed the wanted or the actual state. */
  readonly dirty: Dirty;
  /** Inputs by name, as in {@link LoopOptions.inputs}. */
  readonly inputs?: Readonly<Record<string, LoopInput>>;
  /** Repairs any difference between wanted and actual state, and returns the number of its changes. It does not get the event. */
  readonly sync: (options: PassOptions) => Promise<number>;
  readonly health: HealthPart;
  /** The loop ends, without an error, when this signal aborts. */
  readonly signal: AbortSignal;
  /** The maximum time between two syncs, in milliseconds. */
  readonly resyncMs: number;
  /** Time from an event to its sync in which further events gather, in milliseconds. Default 0. */
  readonly gatherMs?: number;
  /** Pause after failures. Default 200 ms doubling to 30 s. */
  readonly backoff?: Backoff;
  /** The clock of `gatherMs`. Default: the system's clock. */
  readonly clock?: Clock;
}

/**
 * Runs a {@link Loop} that reports to a health part: changes and progress of a sync, or its failure. An {@link ExpectedError} degrades the health and is
 * retried; any other error is a bug and rejects.
 */
export async function reconcile(options: ReconcileOptions): Promise<void> {
  const { sync, health, signal, resyncMs, gatherMs = 0, ...rest } = options;
  const loop = new Loop({
    ...rest,
    everyMs: resyncMs,
    gatherMs: () => gatherMs,
    backoff: options.backoff ?? new Backoff({ initialMs: 200, maxMs: 30_000 }),
    onFailure: (error) => health.degraded(error),
  });
  const work = async (options: PassOptions): Promise<void> => {
    const changes = await sync(options);
    health.ok(`${changes} changes`, progressText(options));
  };
  await loop.run(work, { signal });
}
