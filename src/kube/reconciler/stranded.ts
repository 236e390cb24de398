import { Backoff } from "#base/async";
import type { Clock } from "#base/clock";
import type { RetryOptions } from "#kube/workqueue";

/** The maximum pause before the next look whether the API server is back, in milliseconds. */
const MAX_LOOK_MS = 1000;

/**
 * Keys that failed because the API server is away. None of them is the cause, so they do not wait for a back-off of their own, or for the rate of
 * retries: of thousands the last would be tried minutes after the server is back. One of them is tried again each second; once a pass of one ends in
 * another way, all are.
 */
export class StrandedKeys {
  readonly #clock: Clock;
  readonly #backoff: Backoff;
  readonly #enqueue: (key: string) => void;
  /** In the order in which they are tried; true while a key is being tried again. Its size is bounded by the number of keys. */
  readonly #keys = new Map<string, boolean>();
  /** `undefined` while there is no key to try. */
  #cancelLook: (() => void) | undefined;

  constructor(
    deps: { readonly clock: Clock; readonly enqueue: (key: string) => void },
    { initialMs = 5, jitter = 0.1, random = Math.random }: RetryOptions = {},
  ) {
    this.#clock = deps.clock;
    this.#enqueue = deps.enqueue;
    this.#backoff = new Backoff({ initialMs: Math.min(initialMs, MAX_LOOK_MS), maxMs: MAX_LOOK_MS, jitter, random });
  }

  /** A pass of the key failed because the server is away. Returns the longest time until one of the keys is tried, in milliseconds. */
  add(key: string): number {
    // The next look is for another one: it may be only this key's request that gets no answer.
    this.#keys.delete(key);
    this.#keys.set(key, false);
    this.#lookLater();
    return MAX_LOOK_MS;
  }

  /** A pass of the key ended in another way: if it was one of them, the server is back. */
  ended(key: string): void {
    if (!this.#keys.delete(key)) return;
    const keys = [...this.#keys.keys()];
    this.clear();
    for (const one of keys) this.#enqueue(one);
  }

  /** Forgets all keys, and cancels the timer. */
  clear(): void {
    this.#cancelLook?.();
    this.#cancelLook = undefined;
    this.#keys.clear();
    this.#backoff.reset();
  }

  #look(): void {
    this.#cancelLook = undefined;
    const [next] = this.#waiting();
    if (next === undefined) return;
    this.#keys.set(next, true);
    // Its pass may take as long as a request may; the others are not kept waiting for that.
    this.#lookLater();
    this.#enqueue(next);
  }

  #lookLater(): void {
    if (this.#cancelLook !== undefined || this.#waiting().next().done === true) return;
    this.#cancelLook = this.#clock.after(this.#backoff.next(), () => this.#look());
  }

  *#waiting(): Generator<string> {
    for (const [key, isTried] of this.#keys) if (!isTried) yield key;
  }
}
