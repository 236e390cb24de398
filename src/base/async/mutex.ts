import { Deferred } from "./deferred.ts";
import type { AbortOptions } from "./sleep.ts";

/** A semaphore with at most `permits` holders at once. Waiters get a permit in the order of their calls. */
export class Semaphore {
  #free: number;
  readonly #waiting = new Set<Deferred<void>>();

  constructor(permits: number) {
    this.#free = permits;
  }

  /** Runs `work` while holding a permit. Rejects with the signal's reason when the signal aborts before a permit is free. */
  async run<T>(work: () => Promise<T>, options: AbortOptions = {}): Promise<T> {
    await this.#acquire(options.signal);
    try {
      return await work();
    } finally {
      this.#release();
    }
  }

  /** The number of callers that wait for a permit. */
  get waiting(): number {
    return this.#waiting.size;
  }

  /** True if there is no holder and no waiter, given the number of permits. */
  isIdle(permits: number): boolean {
    return this.#free === permits && this.#waiting.size === 0;
  }

  async #acquire(signal: AbortSignal | undefined): Promise<void> {
    signal?.throwIfAborted();
    if (this.#free > 0) {
      this.#free -= 1;
      return;
    }
    const turn = new Deferred<void>();
    const onAbort = (): void => {
      this.#waiting.delete(turn);
      turn.reject(signal?.reason);
    };
    this.#waiting.add(turn);
    signal?.addEventListener("abort", onAbort, { once: true });
    try {
      await turn.promise;
    } finally {
      signal?.removeEventListener("abort", onAbort);
    }
  }

  #release(): void {
    const next = this.#waiting.values().next();
    if (next.done === true) {
      this.#free += 1;
      return;
    }
    this.#waiting.delete(next.value);
    next.value.resolve();
  }
}

/** A mutex with one holder for each key. A key without a holder takes no memory. */
export class KeyedMutex {
  readonly #locks = new Map<string, Semaphore>();

  /** Runs `work` alone among the holders of `key`, in order of arrival. */
  async run<T>(key: string, work: () => Promise<T>, options: AbortOptions = {}): Promise<T> {
    const lock = this.#locks.get(key) ?? new Semaphore(1);
    this.#locks.set(key, lock);
    try {
      return await lock.run(work, options);
    } finally {
      // The key may have another lock by now: one that is idle was removed when its last holder ended, and an aborted waiter comes here later.
      if (lock.isIdle(1) && this.#locks.get(key) === lock) this.#locks.delete(key);
    }
  }

  /** The number of keys that have a holder. */
  get size(): number {
    return this.#locks.size;
  }
}
