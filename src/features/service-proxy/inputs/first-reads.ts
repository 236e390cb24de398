import { Deferred } from "#base/async";
import type { Clock } from "#base/clock";
import type { Logger } from "#base/log";
import { isAway, isKubeError } from "#kube/client";
import type { InformerHealth } from "#kube/informer";

/** The time for which a refused resource, or a Node without addresses, is waited for, milliseconds (docs/spec/service-proxy.md#2.10). */
const PATIENCE_MS = 30_000;

/** A resource that decides the tables. */
export interface FirstRead {
  readonly resource: string;
  /** The consequence of continuing without the resource, and the fix. */
  readonly without: string;
  /**
   * If true, an API server that does not serve the resource counts as having no such objects. Default: it counts as refusing the resource.
   */
  readonly isOptional?: boolean;
}

interface Read {
  readonly of: FirstRead;
  readonly done: Deferred;
  isDone: boolean;
  cancel: (() => void) | undefined;
  /** The gap that the list had when it was read. A later event may fill the gap; a watch that continues after a failure does not report it again. */
  gap: string | undefined;
}

/**
 * Waits until every resource that decides the tables has been read once; until then the tables of an earlier run stay. If the API server
 * refuses a resource for 30 s, the proxy continues without the resource and logs a warning. If the API server cannot be reached, the proxy
 * waits.
 */
export class FirstReads {
  readonly #clock: Clock;
  readonly #log: Logger;
  readonly #reads: ReadonlyMap<string, Read>;

  constructor(reads: readonly FirstRead[], deps: { readonly log: Logger; readonly clock: Clock }) {
    this.#clock = deps.clock;
    this.#log = deps.log;
    this.#reads = new Map(
      reads.map((of) => [of.resource, { of, done: new Deferred(), isDone: false, cancel: undefined, gap: undefined }]),
    );
  }

  /** Resolves when each resource has been read, or the proxy continues without it. */
  get done(): Promise<unknown> {
    return Promise.all(Array.from(this.#reads.values(), ({ done }) => done.promise));
  }

  /** Records that the resource was read. */
  read(resource: string): void {
    const read = this.#reads.get(resource);
    if (read === undefined) return;
    read.cancel?.();
    read.isDone = true;
    read.done.resolve();
  }

  /** Records that the resource was read, but has a gap that a later event may fill, such as missing addresses. */
  lacks(resource: string, what: string): void {
    const read = this.#reads.get(resource);
    if (read !== undefined) read.gap = what;
    this.#goOnLater(resource, what);
  }

  /** Records the result of an attempt to read the resource. */
  onHealth(resource: string, health: InformerHealth): void {
    const read = this.#reads.get(resource);
    if (read === undefined) return;
    if (health.state === "ready") {
      if (read.gap !== undefined) this.#goOnLater(resource, read.gap);
      return;
    }
    if (isAway(health.error)) {
      read.cancel?.();
      read.cancel = undefined;
    } else if (read.of.isOptional === true && isKubeError(health.error, "not-found")) this.read(resource);
    else this.#goOnLater(resource, health.error.message);
  }

  /** Cancels all timers. */
  cancel(): void {
    for (const { cancel } of this.#reads.values()) cancel?.();
  }

  #goOnLater(resource: string, why: string): void {
    const read = this.#reads.get(resource);
    if (read === undefined || read.isDone || read.cancel !== undefined) return;
    read.cancel = this.#clock.after(PATIENCE_MS, () => {
      this.#log.warn(`continuing without ${resource}`, { why, fix: read.of.without });
      this.read(resource);
    });
  }
}
