import type { Clock } from "#base/clock";
import { describeError, ExpectedError, isAbortError } from "#base/errors";
import type { Logger } from "#base/log";
import { isAway, isKubeError } from "#kube/client";
import { allSynced } from "#kube/informer";
import type { Aside, PassRecord } from "#kube/suspects";
import { type RetryOptions, runWorkers, WorkQueue } from "#kube/workqueue";
import { StrandedKeys } from "./stranded.ts";

/** The conflicts in a row that are no news for a log: another writer was faster, and the next pass works with what it wrote. */
const QUIET_CONFLICTS = 5;

/** The result of a reconciler: `undefined`, or the time after which it needs another pass. */
export type ReconcileResult = undefined | { readonly requeueAfterMs: number };

/** One pass, for `controller_runtime_reconcile_total`, `_errors_total`, `_panics_total` and `_time_seconds`. */
export interface ReconcileSample {
  readonly controller: string;
  readonly result: "success" | "error" | "requeue_after";
  /** True if the pass failed with an error that is not an `ExpectedError`. */
  readonly bug: boolean;
  readonly durationMs: number;
}

/** Settings of a {@link Controller}. */
export interface ControllerOptions {
  /** The name in logs and metrics. */
  readonly name: string;
  /**
   * Reconciles one key. It does not get the event that marked the key. A failure is retried with back-off, and does not delay
   * other keys; any error that is not an `ExpectedError` is a bug and is logged as an error with its stack (docs/decisions/0004).
   */
  readonly reconcile: (
    key: string,
    options: { readonly signal: AbortSignal },
    // biome-ignore lint/suspicious/noConfusingVoidType: a reconciler that wants nothing returns nothing
  ) => Promise<ReconcileResult | void>;
  /** The number of keys that are reconciled concurrently. Default 1. */
  readonly workers?: number;
  readonly retry?: RetryOptions;
  /** Informers whose first lists must be read before the first key is reconciled. */
  readonly waitFor?: Iterable<{ readonly synced: Promise<void> }>;
  readonly onReconcile?: (sample: ReconcileSample) => void;
  readonly onDepth?: (depth: number) => void;
  /** Passes are recorded here, so that an object that ends the process is set aside. Default: nowhere. */
  readonly passes?: PassRecord;
  /** The version of the object that a key names; `undefined` if there is none. Default: no key names an object. */
  readonly versionOf?: (key: string) => string | undefined;
  /** Called once each time when an object is set aside. */
  readonly onAside?: (key: string, aside: Aside) => void;
  readonly log: Logger;
  readonly clock: Clock;
}

/** A work queue and the reconciler of its keys. Informers' handlers call {@link Controller.enqueue}. */
export class Controller {
  readonly #options: ControllerOptions;
  readonly #clock: Clock;
  readonly #queue: WorkQueue;
  /** The last error of each failing key, so that a repeated error is logged once. Its size is bounded by the number of failing keys. */
  readonly #lastError = new Map<string, string>();
  readonly #stranded: StrandedKeys;
  /** The end of the time for which each key is set aside, so that it is told once. Its size is bounded by the number of suspects. */
  readonly #aside = new Map<string, number>();

  constructor(options: ControllerOptions) {
    this.#options = options;
    this.#clock = options.clock;
    this.#queue = new WorkQueue({
      clock: this.#clock,
      ...(options.retry === undefined ? {} : { retry: options.retry }),
      ...(options.onDepth === undefined ? {} : { onDepth: options.onDepth }),
    });
    const enqueue = (key: string): void => this.#queue.add(key);
    this.#stranded = new StrandedKeys({ clock: this.#clock, enqueue }, options.retry);
  }

  /** The number of keys that wait for a worker. */
  get depth(): number {
    return this.#queue.depth;
  }

  /** Marks a key dirty; any number of marks before its reconciliation cause one pass. */
  enqueue(key: string): void {
    this.#queue.add(key);
  }

  /** Marks a key dirty in `delayMs`. */
  enqueueAfter(key: string, delayMs: number): void {
    this.#queue.addAfter(key, delayMs);
  }

  /** Reconciles keys until the signal aborts; then waits for the passes that are running. Call it once. Rejects only for its own bugs. */
  async run(options: { readonly signal: AbortSignal }): Promise<void> {
    const { signal } = options;
    try {
      await allSynced(this.#options.waitFor ?? [], { signal });
      await runWorkers(this.#queue, {
        workers: this.#options.workers ?? 1,
        process: (key, at) => this.#process(key, at.signal),
        signal,
      });
    } catch (error) {
      if (!signal.aborted || (error !== signal.reason && !isAbortError(error))) throw error;
    } finally {
      // Delayed keys have timers, which would keep the process alive after its work has ended.
      this.#queue.shutDown();
      this.#stranded.clear();
    }
  }

  async #process(key: string, signal: AbortSignal): Promise<void> {
    const { name: controller, passes, versionOf } = this.#options;
    const version = versionOf?.(key) ?? "";
    if (this.#isHeld(key, version)) return;
    const pass = passes?.begin({ controller, key }, version);
    try {
      await this.#pass(key, signal);
    } finally {
      pass?.end();
    }
  }

  /** Returns true if a key must not be reconciled now; it is queued for later then. */
  #isHeld(key: string, version: string): boolean {
    const { name: controller, passes, onAside } = this.#options;
    const held = passes?.hold({ controller, key }, version);
    if (held === undefined) {
      this.#aside.delete(key);
      return false;
    }
    this.#queue.addAfter(key, held.waitMs);
    const { aside } = held;
    if (aside !== undefined && this.#aside.get(key) !== aside.untilMs) {
      this.#aside.set(key, aside.untilMs);
      onAside?.(key, aside);
    }
    return true;
  }

  async #pass(key: string, signal: AbortSignal): Promise<void> {
    const { name, reconcile, onReconcile } = this.#options;
    const startedAt = this.#clock.monotonic();
    const sample = (result: ReconcileSample["result"], bug = false): void =>
      onReconcile?.({ controller: name, result, bug, durationMs: this.#clock.monotonic() - startedAt });
    try {
      const result = await reconcile(key, { signal });
      this.#lastError.delete(key);
      this.#queue.forget(key);
      this.#stranded.ended(key);
      sample(result === undefined ? "success" : "requeue_after");
      if (result !== undefined) this.#queue.addAfter(key, result.requeueAfterMs);
    } catch (error) {
      if (signal.aborted) throw error;
      sample("error", !(error instanceof ExpectedError));
      if (isAway(error)) {
        this.#report(key, error, this.#stranded.add(key));
        return;
      }
      this.#stranded.ended(key);
      this.#report(key, error, this.#queue.retry(key));
    }
  }

  #report(key: string, error: unknown, retryInMs: number): void {
    const { log } = this.#options;
    const text = describeError(error);
    const fields = {
      key,
      error: text,
      retryInMs: Math.round(retryInMs),
      failures: Math.max(1, this.#queue.failures(key)),
    };
    if (isKubeError(error, "conflict") && fields.failures <= QUIET_CONFLICTS) {
      log.debug("another writer was faster: reconciling again", fields);
      return;
    }
    if (this.#lastError.get(key) === text) {
      log.debug("reconcile still fails", fields);
      return;
    }
    this.#lastError.set(key, text);
    if (error instanceof ExpectedError) log.warn("reconcile failed", fields);
    else
      log.error("reconcile failed because of a bug", {
        ...fields,
        stack: error instanceof Error ? error.stack : undefined,
      });
  }
}
