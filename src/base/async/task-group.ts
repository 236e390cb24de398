import { isAbortError } from "#base/errors";

/**
 * The tasks of a program. The first failure aborts the rest; {@link TaskGroup.wait} settles when all tasks have ended.
 *
 * ```ts
 * const group = new TaskGroup(signal);
 * group.spawn((signal) => informer.run({ signal }));
 * await group.wait();
 * ```
 */
export class TaskGroup {
  readonly #controller = new AbortController();
  readonly #running = new Set<Promise<void>>();
  #failure: { readonly error: unknown } | undefined;

  /** The group aborts when `parent` aborts. */
  constructor(parent?: AbortSignal) {
    if (parent?.aborted === true) this.#controller.abort(parent.reason);
    parent?.addEventListener("abort", () => this.#controller.abort(parent.reason), {
      once: true,
      signal: this.#controller.signal,
    });
  }

  get signal(): AbortSignal {
    return this.#controller.signal;
  }

  /** Starts a task. An abort error after the group was aborted is a clean end; any other rejection fails the group. */
  spawn(task: (signal: AbortSignal) => Promise<void>): void {
    const running = this.#supervise(task).finally(() => this.#running.delete(running));
    this.#running.add(running);
  }

  /** Asks all tasks to end. */
  abort(reason?: unknown): void {
    this.#controller.abort(reason);
  }

  /** Fails the group in the same way as a failed task; for errors that reach a callback. The group keeps the first failure. */
  fail(error: unknown): void {
    this.#failure ??= { error };
    this.#controller.abort(error);
  }

  /** Resolves when every task has ended; rejects with the first failure. */
  async wait(): Promise<void> {
    while (this.#running.size > 0) await Promise.all(this.#running);
    if (this.#failure !== undefined) throw this.#failure.error;
  }

  async #supervise(task: (signal: AbortSignal) => Promise<void>): Promise<void> {
    try {
      await task(this.signal);
    } catch (error) {
      if (this.signal.aborted && (isAbortError(error) || error === this.signal.reason)) return;
      this.fail(error);
    }
  }
}
