import { Deferred } from "#base/async";
import { type Clock, systemClock } from "#base/clock";
import type { Logger } from "#base/log";
import { isAway, isKubeError } from "#kube/client";
import type { InformerHealth } from "#kube/informer";

/** What is refused, or lacks what is needed of it, is waited for so long, milliseconds (docs/spec/service-proxy.md#2.10: the Node's addresses). */
const PATIENCE_MS = 30_000;

/** One kind of object that decides about the tables. */
export interface FirstRead {
  readonly resource: string;
  /** What cannot be had without it, and what to do about it. */
  readonly without: string;
  /** A server that does not know the kind has none of it. Default: that is a refusal. */
  readonly isOptional?: boolean;
}

interface Read {
  readonly of: FirstRead;
  readonly done: Deferred;
  isDone: boolean;
  cancel: (() => void) | undefined;
}

/**
 * Waits until everything that decides about the tables has been read once: what an earlier run left there is right until the opposite is
 * known. Who is refused for half a minute goes on without, and says so; a server that is away is waited for.
 */
export class FirstReads {
  readonly #clock: Clock;
  readonly #log: Logger;
  readonly #reads: ReadonlyMap<string, Read>;

  constructor(reads: readonly FirstRead[], deps: { readonly log: Logger; readonly clock?: Clock | undefined }) {
    this.#clock = deps.clock ?? systemClock;
    this.#log = deps.log;
    this.#reads = new Map(
      reads.map((of) => [of.resource, { of, done: new Deferred(), isDone: false, cancel: undefined }]),
    );
  }

  /** Resolves when all have been read, or gone on without. */
  get done(): Promise<unknown> {
    return Promise.all(Array.from(this.#reads.values(), ({ done }) => done.promise));
  }

  /** It was read. */
  read(resource: string): void {
    const read = this.#reads.get(resource);
    if (read === undefined) return;
    read.cancel?.();
    read.isDone = true;
    read.done.resolve();
  }

  /** It was read, but what is needed of it may come yet. */
  lacks(resource: string, what: string): void {
    this.#goOnLater(resource, what);
  }

  /** What became of a try to read it. */
  onHealth(resource: string, health: InformerHealth): void {
    if (health.state === "ready") return;
    const read = this.#reads.get(resource);
    if (read === undefined) return;
    if (isAway(health.error)) {
      read.cancel?.();
      read.cancel = undefined;
    } else if (read.of.isOptional === true && isKubeError(health.error, "not-found")) this.read(resource);
    else this.#goOnLater(resource, health.error.message);
  }

  /** Ends what waits. */
  cancel(): void {
    for (const { cancel } of this.#reads.values()) cancel?.();
  }

  #goOnLater(resource: string, why: string): void {
    const read = this.#reads.get(resource);
    if (read === undefined || read.isDone || read.cancel !== undefined) return;
    read.cancel = this.#clock.after(PATIENCE_MS, () => {
      this.#log.warn(`going on without ${resource}`, { why, fix: read.of.without });
      this.read(resource);
    });
  }
}
