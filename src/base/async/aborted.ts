import type { AbortLikeOptions, AbortSignalLike } from "./light-abort-signal.ts";

/** Resolves when the signal aborts. */
export function untilAborted(signal: AbortSignalLike): Promise<void> {
  const { promise, resolve } = Promise.withResolvers<void>();
  if (signal.aborted) resolve();
  else signal.addEventListener("abort", () => resolve(), { once: true });
  return promise;
}

/**
 * The result of `work`, or a rejection with the signal's reason when the signal aborts first. Use this for work that cannot be
 * cancelled or that has other waiters: the work continues after the abort, and its later failure is ignored here.
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
