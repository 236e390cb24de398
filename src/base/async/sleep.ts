import { type Clock, systemClock } from "#base/clock";
import type { AbortLikeOptions } from "./light-abort-signal.ts";

/** The options of a function that waits; they are its last parameter. */
export interface AbortOptions {
  readonly signal?: AbortSignal | undefined;
}

/** Resolves after `delayMs`; rejects with the signal's reason when the signal aborts first. */
export function sleep(delayMs: number, options: AbortOptions & { readonly clock?: Clock } = {}): Promise<void> {
  const { signal, clock = systemClock } = options;
  return new Promise((resolve, reject) => {
    if (signal?.aborted === true) {
      reject(signal.reason);
      return;
    }
    const onAbort = (): void => {
      cancel();
      reject(signal?.reason);
    };
    const cancel = clock.after(delayMs, () => {
      signal?.removeEventListener("abort", onAbort);
      resolve();
    });
    signal?.addEventListener("abort", onAbort, { once: true });
  });
}

/** Resolves after `delayMs` or when the signal aborts. Never rejects. */
export function pause(delayMs: number, options: AbortLikeOptions & { readonly clock?: Clock } = {}): Promise<void> {
  const { signal, clock = systemClock } = options;
  if (signal?.aborted === true) return Promise.resolve();
  return new Promise((resolve) => {
    const end = (): void => {
      cancel();
      signal?.removeEventListener("abort", end);
      resolve();
    };
    const cancel = clock.after(delayMs, end);
    signal?.addEventListener("abort", end, { once: true });
  });
}

/**
 * Runs `work` with a signal that aborts after `deadlineMs` or with `signal`, whichever is first. The timer is cleared
 * when the work ends. If the work rejects, this rejects with the same error; work that ignores its signal runs to its own end.
 */
export async function withDeadline<T>(
  deadlineMs: number,
  work: (signal: AbortSignal) => Promise<T>,
  options: AbortLikeOptions & { readonly clock?: Clock } = {},
): Promise<T> {
  const { signal, clock = systemClock } = options;
  const controller = new AbortController();
  const onAbort = (): void => controller.abort(signal?.reason);
  if (signal?.aborted === true) controller.abort(signal.reason);
  signal?.addEventListener("abort", onAbort, { once: true });
  const cancel = clock.after(deadlineMs, () =>
    controller.abort(new DOMException(`the operation was not done within ${deadlineMs} ms`, "TimeoutError")),
  );
  try {
    return await work(controller.signal);
  } finally {
    cancel();
    signal?.removeEventListener("abort", onAbort);
  }
}
