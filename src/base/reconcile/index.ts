/**
 * The reconcile loop, written once. Watches only mark dirty; the loop reads the world, plans, applies and reports, and
 * runs again on a timer because others edit the same world.
 */
import { Backoff, type Dirty } from "#base/async";
import { ExpectedError } from "#base/errors";
import type { HealthPart } from "#base/health";

export interface ReconcileOptions {
  /** Marked by whatever may have changed the wanted or the actual state. */
  readonly dirty: Dirty;
  /** Level-triggered: not told what happened. Repairs any difference and returns how many changes it made. */
  readonly sync: (options: { readonly signal: AbortSignal }) => Promise<number>;
  readonly health: HealthPart;
  /** The loop ends, without an error, when this aborts. */
  readonly signal: AbortSignal;
  /** Sync at least this often, milliseconds. */
  readonly resyncMs: number;
  /** Pause after failures. Default 200 ms doubling to 30 s. */
  readonly backoff?: Backoff;
}

/** Runs until the signal aborts. An {@link ExpectedError} is reported and retried; anything else is a bug and rejects. */
export async function reconcile(options: ReconcileOptions): Promise<void> {
  const { dirty, sync, health, signal, resyncMs } = options;
  const backoff = options.backoff ?? new Backoff({ initialMs: 200, maxMs: 30_000 });
  while (!signal.aborted) {
    let pauseMs = resyncMs;
    try {
      const changes = await sync({ signal });
      backoff.reset();
      health.ok(`${changes} changes`);
    } catch (error) {
      if (signal.aborted) return;
      if (!(error instanceof ExpectedError)) throw error;
      health.degraded(error);
      pauseMs = backoff.next();
    }
    await dirty.wait({ atMostMs: pauseMs, signal });
  }
}
