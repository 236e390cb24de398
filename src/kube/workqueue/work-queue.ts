import { type AbortOptions, Deferred, unlessAborted } from "#base/async";
import type { Clock } from "#base/clock";
import { RetryLimiter, type RetryOptions } from "./rate-limiter.ts";

/** Settings of a {@link WorkQueue}. */
export interface WorkQueueOptions {
  readonly retry?: RetryOptions;
  readonly clock: Clock;
  /** Called with the number of keys that wait to be handled, whenever it changes: `workqueue_depth`. */
  readonly onDepth?: (depth: number) => void;
}

/**
 * A queue of keys, modelled on client-go's workqueue: a key that waits is not added again; a key that is being processed
 * is not passed to a second worker, but is queued again when it was added meanwhile. Memory is bounded by the number of distinct keys.
 */
export class WorkQueue {
  readonly #clock: Clock;
  readonly #limiter: RetryLimiter;
  readonly #onDepth: (depth: number) => void;
  /** Keys that wait for a worker, in order. */
  readonly #ready = new Set<string>();
  /** Keys that workers are processing; true if the key was added again meanwhile. */
  readonly #processing = new Map<string, boolean>();
  /** Keys that are added after a delay. */
  readonly #later = new Map<string, { readonly at: number; readonly cancel: () => void }>();
  readonly #takers = new Set<Deferred<string | undefined>>();
  readonly #drained = new Set<Deferred>();
  #shutDown = false;

  constructor(options: WorkQueueOptions) {
    this.#clock = options.clock;
    this.#limiter = new RetryLimiter({ ...options.retry, clock: this.#clock });
    this.#onDepth = options.onDepth ?? (() => undefined);
  }

  /** The number of keys that wait for a worker. */
  get depth(): number {
    return this.#ready.size;
  }

  /** The number of keys that workers are processing. */
  get processing(): number {
    return this.#processing.size;
  }

  /** Queues the key, unless it already waits or the queue is shut down. */
  add(key: string): void {
    if (this.#shutDown) return;
    if (this.#processing.has(key)) {
      this.#processing.set(key, true);
      return;
    }
    if (this.#ready.has(key)) return;
    const taker = this.#takers.values().next();
    if (taker.done === true) {
      this.#ready.add(key);
      this.#onDepth(this.#ready.size);
      return;
    }
    this.#takers.delete(taker.value);
    this.#processing.set(key, false);
    taker.value.resolve(key);
  }

  /** Queues the key after `delayMs`; of several calls for a key the earliest time counts. */
  addAfter(key: string, delayMs: number): void {
    if (this.#shutDown) return;
    if (delayMs <= 0) {
      this.add(key);
      return;
    }
    const at = this.#clock.monotonic() + delayMs;
    const known = this.#later.get(key);
    if (known !== undefined && known.at <= at) return;
    known?.cancel();
    const cancel = this.#clock.after(delayMs, () => {
      this.#later.delete(key);
      this.add(key);
    });
    this.#later.set(key, { at, cancel });
  }

  /** Counts a failure of the key and queues it after its back-off; returns the delay, in milliseconds. */
  retry(key: string): number {
    const delayMs = this.#limiter.when(key);
    this.addAfter(key, delayMs);
    return delayMs;
  }

  /** Call this when the key succeeded: resets its back-off. */
  forget(key: string): void {
    this.#limiter.forget(key);
  }

  /** The number of failures of the key since it was forgotten. */
  failures(key: string): number {
    return this.#limiter.failures(key);
  }

  /**
   * Resolves to the next key, once there is one; the caller must pass it to {@link WorkQueue.done}. `undefined`: the queue is shut down
   * and empty. Rejects with the signal's reason when it aborts first.
   */
  async take(options: AbortOptions = {}): Promise<string | undefined> {
    options.signal?.throwIfAborted();
    const next = this.#ready.values().next();
    if (next.done !== true) {
      this.#ready.delete(next.value);
      this.#processing.set(next.value, false);
      this.#onDepth(this.#ready.size);
      return next.value;
    }
    if (this.#shutDown) return undefined;
    return this.#waitForKey(options.signal);
  }

  /** The taken key is done; if it was added meanwhile it is queued again. */
  done(key: string): void {
    const again = this.#processing.get(key) === true;
    this.#processing.delete(key);
    if (again && !this.#shutDown) this.add(key);
    else this.#checkDrained();
  }

  /** Accepts no more keys and drops delayed keys; keys that wait are still processed. */
  shutDown(): void {
    this.#shutDown = true;
    for (const { cancel } of this.#later.values()) cancel();
    this.#later.clear();
    for (const taker of this.#takers) taker.resolve(undefined);
    this.#takers.clear();
    this.#checkDrained();
  }

  /** Shuts down and resolves when every key that waited is done. Rejects with the signal's reason when it aborts first. */
  async drain(options: AbortOptions = {}): Promise<void> {
    this.shutDown();
    if (this.#isDrained) return;
    const drained = new Deferred();
    this.#drained.add(drained);
    try {
      await unlessAborted(drained.promise, options);
    } finally {
      this.#drained.delete(drained);
    }
  }

  get #isDrained(): boolean {
    return this.#ready.size === 0 && this.#processing.size === 0;
  }

  #checkDrained(): void {
    if (this.#shutDown && this.#isDrained) for (const drained of this.#drained) drained.resolve();
  }

  async #waitForKey(signal: AbortSignal | undefined): Promise<string | undefined> {
    const turn = new Deferred<string | undefined>();
    this.#takers.add(turn);
    const onAbort = (): void => {
      // A key that was given to a worker in this tick is still processed by that worker.
      if (this.#takers.delete(turn)) turn.reject(signal?.reason);
    };
    signal?.addEventListener("abort", onAbort, { once: true });
    try {
      return await turn.promise;
    } finally {
      signal?.removeEventListener("abort", onAbort);
    }
  }
}
