import { Backoff, type Dirty, repeat } from "#base/async";
import type { HealthPart } from "#base/health";

export interface ReconcileOptions {
  /** Marked by every event that may have changed the wanted or the actual state. */
  readonly dirty: Dirty;
  /** Repairs any difference between wanted and actual state, and returns the number of its changes. It does not get the event. */
  readonly sync: (options: { readonly signal: AbortSignal }) => Promise<number>;
  readonly health: HealthPart;
  /** The loop ends, without an error, when this signal aborts. */
  readonly signal: AbortSignal;
  /** The maximum time between two syncs, in milliseconds. */
  readonly resyncMs: number;
  /** Pause after failures. Default 200 ms doubling to 30 s. */
  readonly backoff?: Backoff;
}

/** Syncs until the signal aborts. An {@link ExpectedError} degrades the health and is retried; any other error is a bug and rejects. */
export async function reconcile(options: ReconcileOptions): Promise<void> {
  const { dirty, sync, health, signal, resyncMs } = options;
  const work = async (): Promise<void> => health.ok(`${await sync({ signal })} changes`);
  await repeat(work, {
    signal,
    dirty,
    everyMs: resyncMs,
    backoff: options.backoff ?? new Backoff({ initialMs: 200, maxMs: 30_000 }),
    onFailure: (error) => health.degraded(error),
  });
}
