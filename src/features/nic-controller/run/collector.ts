import { type AbortOptions, Deferred, unlessAborted } from "#base/async";
import type { Clock } from "#base/clock";

/** The functions by which items become requests. */
export interface CollectorOptions<Item, Result> {
  /** The time for which the first item waits for others, in milliseconds. */
  readonly gatherMs: number;
  /** Items of one request at most. */
  readonly maxItems: number;
  /** Requests at a time; while that many are under way, items gather. */
  readonly maxAtOnce: number;
  /** Sends one request; one result for each item, in their order. Its rejection is that of all items. */
  readonly send: (items: readonly Item[], options: { readonly signal: AbortSignal }) => Promise<readonly Result[]>;
  /** Aborts requests, which then fail all their items. */
  readonly signal: AbortSignal;
}

interface Waiting<Item, Result> {
  readonly item: Item;
  readonly result: Deferred<Result>;
}

/**
 * Makes few requests of many items that come at the same time (docs/spec/vpc-nics.md#5.4). A request has several waiters, so it ends by
 * itself, not by the signal of one of them. It holds as many items as there are callers that wait.
 */
export class Collector<Item, Result> {
  readonly #clock: Clock;
  readonly #options: CollectorOptions<Item, Result>;
  #waiting: Waiting<Item, Result>[] = [];
  #underWay = 0;
  #cancel: (() => void) | undefined;
  #isOver = false;

  constructor({ clock }: { readonly clock: Clock }, options: CollectorOptions<Item, Result>) {
    this.#clock = clock;
    this.#options = options;
  }

  /** Resolves with the result of an item. Rejects with the failure of its request, and with the reason of `signal`. */
  async add(item: Item, { signal }: AbortOptions): Promise<Result> {
    signal?.throwIfAborted();
    const result = new Deferred<Result>();
    this.#waiting.push({ item, result });
    // A caller that has gone does not hear of a failure.
    result.promise.catch(() => undefined);
    if (this.#waiting.length >= this.#options.maxItems) this.#flush();
    else if (!this.#isOver) this.#cancel ??= this.#clock.after(this.#options.gatherMs, () => this.#gathered());
    else this.#flush();
    return unlessAborted(result.promise, { signal });
  }

  #gathered(): void {
    this.#isOver = true;
    this.#flush();
  }

  #flush(): void {
    const { maxItems, maxAtOnce } = this.#options;
    while (this.#waiting.length > 0 && this.#underWay < maxAtOnce) {
      const batch = this.#waiting.slice(0, maxItems);
      this.#waiting = this.#waiting.slice(maxItems);
      this.#underWay += 1;
      void this.#send(batch);
    }
    if (this.#waiting.length > 0) return;
    this.#cancel?.();
    this.#cancel = undefined;
    this.#isOver = false;
  }

  async #send(batch: readonly Waiting<Item, Result>[]): Promise<void> {
    const { send, signal } = this.#options;
    try {
      const results = await send(
        batch.map(({ item }) => item),
        { signal },
      );
      for (const [at, { result }] of batch.entries()) {
        if (at < results.length) result.resolve(results[at] as Result);
        else result.reject(new Error(`a request of ${batch.length} items has ${results.length} results`));
      }
    } catch (error) {
      for (const { result } of batch) result.reject(error);
    } finally {
      this.#underWay -= 1;
      if (this.#isOver || this.#waiting.length >= this.#options.maxItems) this.#flush();
    }
  }
}
