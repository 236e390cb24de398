/** A source of time. All values are milliseconds. */
export interface Clock {
  /** Wall-clock time, milliseconds since the Unix epoch. This time may jump forward or back. */
  now(): number;
  /** Milliseconds from an arbitrary start; never goes back. Use it for every duration and deadline. */
  monotonic(): number;
  /** Runs `callback` once after `delayMs`; returns a function that cancels it. Does not keep the process alive by itself if `unref`. */
  after(delayMs: number, callback: () => void, options?: { readonly unref?: boolean }): () => void;
}

/** The clock of the operating system. */
export const systemClock: Clock = {
  now: () => Date.now(),
  monotonic: () => performance.now(),
  after(delayMs, callback, options = {}) {
    // setTimeout overflows to "at once" above 2^31-1 ms (24.8 days).
    const timer = setTimeout(callback, Math.min(delayMs, 0x7fff_ffff));
    if (options.unref === true) timer.unref();
    return () => clearTimeout(timer);
  },
};
