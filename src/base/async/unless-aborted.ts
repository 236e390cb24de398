import type { AbortLikeOptions } from "./light-abort-signal.ts";

/**
 * The work's outcome, or the signal's reason if that comes first. For work that cannot be cancelled, or that others wait for too: it
 * goes on, and nobody hears of its failure here.
 */
export async function unlessAborted<T>(work: Promise<T>, { signal }: AbortLikeOptions): Promise<T> {
  if (signal === undefined) return work;
  const aborted = Promise.withResolvers<never>();
  const onAbort = (): void => aborted.reject(signal.reason);
  if (signal.aborted) onAbort();
  signal.addEventListener("abort", onAbort, { once: true });
  try {
    return await Promise.race([aborted.promise, work]);
  } finally {
    signal.removeEventListener("abort", onAbort);
  }
}
