import { Backoff } from "#base/async";
import type { Clock } from "#base/clock";
import type { HealthPart } from "#base/health";
import { repeat } from "#base/reconcile";
import type { Journal } from "#features/nic-cni";

/** The interval at which the disk is tried, in milliseconds: a write there waits for the disk. */
const EVERY_MS = 30_000;
/** The same while it is full. */
const AGAIN_MS = 10_000;

/** Says by a part of the health whether the journal can be written, until the signal aborts: on a full disk every ADD fails. */
export function keepDisk(
  {
    journal,
    health,
    clock,
  }: { readonly journal: Pick<Journal, "probe">; readonly health: HealthPart; readonly clock: Clock },
  { signal }: { readonly signal: AbortSignal },
): Promise<void> {
  const look = async (): Promise<void> => {
    journal.probe();
    health.ok();
  };
  const backoff = new Backoff({ initialMs: AGAIN_MS, maxMs: AGAIN_MS });
  return repeat(look, { signal, everyMs: EVERY_MS, backoff, onFailure: (error) => health.degraded(error), clock });
}
