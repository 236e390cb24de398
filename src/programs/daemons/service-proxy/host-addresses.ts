import { Backoff, type Dirty } from "#base/async";
import type { Logger } from "#base/log";
import { repeat } from "#base/reconcile";

/** Longest time between two readings, in milliseconds: none is needed but where an event was lost. */
const HOUR_MS = 3_600_000;
/** First and longest pause after a reading that failed, in milliseconds. */
const RETRY_MS = 500;
const MAX_RETRY_MS = 5000;

/**
 * Reads the host's addresses at once and whenever they have changed, until the signal aborts. A reading that throws an `ExpectedError` is logged,
 * once until one succeeds, and repeated; any other error rejects.
 */
export function followAddresses(
  read: () => void,
  { changed, signal, log }: { readonly changed: Dirty; readonly signal: AbortSignal; readonly log: Logger },
): Promise<void> {
  let isFailing = false;
  const work = async (): Promise<void> => {
    read();
    isFailing = false;
  };
  return repeat(work, {
    signal,
    dirty: changed,
    everyMs: HOUR_MS,
    backoff: new Backoff({ initialMs: RETRY_MS, maxMs: MAX_RETRY_MS }),
    onFailure: (error) => {
      if (!isFailing) log.warn("cannot read the host's addresses; trying again", { error: error.message });
      isFailing = true;
    },
  });
}
