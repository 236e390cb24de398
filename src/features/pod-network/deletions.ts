import { type AbortOptions, Deferred } from "#base/async";
import { isKernelError, type KernelError } from "#kernel/errors";
import type { DeletableLink, LinkPort } from "#kernel/link";

/** The maximum number of links in a batch: an ADD waits some 4 ms while the kernel deletes a batch of this size. */
export const MAX_BATCH = 16;
/** The maximum number of concurrent batches, equal to that of a netlink connection. Their waits overlap. */
export const MAX_BATCHES = 2;

interface Waiting {
  readonly link: DeletableLink;
  readonly done: Deferred;
}

/**
 * Batches the deletions of links. A lone deletion starts at once. Deletions that are requested in one tick of the event loop, or while the
 * kernel is busy, form one batch and share the kernel's wait of some 20 ms; a hundred deletions in a row would take two seconds. Each
 * caller gets the outcome of its own link: if a whole batch is refused, its links are tried one by one.
 *
 * A link is deleted long before the kernel answers: it is removed from the lists, packets on their way have ended, routes and addresses are
 * removed, RTM_DELLINK is sent, and only then the kernel waits for its own readers (net/core/dev.c, unregister_netdevice_many and
 * netdev_run_todo). A caller that hears that event passes it to {@link LinkDeletions.gone}; without that call the answer counts.
 *
 * The queue is bounded by the callers: each link waits once, under the lock of its container.
 */
export class LinkDeletions {
  readonly #links: Pick<LinkPort, "deleteMany">;
  readonly #waiting = new Set<Waiting>();
  /** Deletions whose request the kernel has received, by the index of the link. */
  readonly #running = new Map<number, Waiting>();
  #batches = 0;
  #due = false;

  constructor(links: Pick<LinkPort, "deleteMany">) {
    this.#links = links;
  }

  /**
   * Rejects with {@link KernelError}, `no-device` if the link does not exist, or with the signal's reason while it still
   * waits; later an abort does not stop the deletion.
   */
  async delete(link: DeletableLink, { signal }: AbortOptions = {}): Promise<void> {
    signal?.throwIfAborted();
    const waiting: Waiting = { link, done: new Deferred() };
    const onAbort = (): void => {
      if (this.#waiting.delete(waiting)) waiting.done.reject(signal?.reason);
    };
    this.#waiting.add(waiting);
    signal?.addEventListener("abort", onAbort, { once: true });
    this.#startSoon();
    try {
      await waiting.done.promise;
    } finally {
      signal?.removeEventListener("abort", onAbort);
    }
  }

  /** Call this when the kernel has reported that the link does not exist any more: its deletion, if requested, has succeeded. */
  gone(index: number): void {
    this.#running.get(index)?.done.resolve();
  }

  /** Runs at the end of this tick, after all of its requests. */
  #startSoon(): void {
    if (this.#due) return;
    this.#due = true;
    setImmediate(() => {
      this.#due = false;
      this.#start();
    });
  }

  #start(): void {
    while (this.#batches < MAX_BATCHES && this.#waiting.size > 0) {
      const batch = [...this.#waiting].slice(0, MAX_BATCH);
      for (const one of batch) this.#waiting.delete(one);
      this.#batches += 1;
      // Never rejects: each waiting caller gets the outcome.
      void this.#run(batch).finally(() => {
        this.#batches -= 1;
        this.#start();
      });
    }
  }

  async #run(batch: readonly Waiting[]): Promise<void> {
    for (const one of batch) this.#running.set(one.link.index, one);
    try {
      settle(batch, await this.#links.deleteMany(batch.map(({ link }) => link)));
    } catch (error) {
      if (batch.length > 1 && isKernelError(error)) await Promise.all(batch.map((one) => this.#run([one])));
      else for (const { done } of batch) done.reject(error);
    } finally {
      for (const one of batch) if (this.#running.get(one.link.index) === one) this.#running.delete(one.link.index);
    }
  }
}

function settle(batch: readonly Waiting[], failures: ReadonlyMap<number, KernelError>): void {
  for (const { link, done } of batch) {
    const failure = failures.get(link.index);
    if (failure === undefined) done.resolve();
    else done.reject(failure);
  }
}
