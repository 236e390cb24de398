import { sleep } from "#base/async";
import type { Clock } from "#base/clock";
import { type ApiFailure, isApiFailure } from "#kube/client";

/** The outcome of a call. */
export type Attempt<V> =
  | { readonly value: V; readonly failure?: never }
  | { readonly value?: never; readonly failure: ApiFailure };

/** Turns the API's failures into values; other errors (an abort, a bug) are thrown on. */
export async function attempt<V>(work: () => Promise<V>): Promise<Attempt<V>> {
  try {
    return { value: await work() };
  } catch (error) {
    if (isApiFailure(error)) return { failure: error };
    throw error;
  }
}

/** Waits; resolves early when the signal aborts. */
export async function sleepUntilAborted(waitMs: number, signal: AbortSignal, clock: Clock): Promise<void> {
  try {
    await sleep(waitMs, { signal, clock });
  } catch (error) {
    if (!signal.aborted) throw error;
  }
}
