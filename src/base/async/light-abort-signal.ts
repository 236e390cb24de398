/** The part of an `AbortSignal` that this project uses. An `AbortSignal` and a {@link LightAbortSignal} both have it. */
export interface AbortSignalLike {
  readonly aborted: boolean;
  readonly reason: unknown;
  throwIfAborted(): void;
  addEventListener(type: "abort", listener: () => void, options?: { readonly once: true }): void;
  removeEventListener(type: "abort", listener: () => void): void;
}

/** The same as `AbortOptions`, for functions that also accept a {@link LightAbortSignal}. */
export interface AbortLikeOptions {
  readonly signal?: AbortSignalLike | undefined;
}

/**
 * An `AbortController` and its signal in one object without an `EventTarget`, for operations that start some thousand times a second:
 * the listeners of an `EventTarget` take more CPU time than the connections that they end. When a listener throws, the others are still
 * called, and the first error is thrown to the caller of {@link abort}.
 */
export class LightAbortSignal implements AbortSignalLike {
  readonly #listeners: (() => void)[] = [];
  #isAborted = false;
  #reason: unknown;

  get aborted(): boolean {
    return this.#isAborted;
  }

  /** The reason of the abort; `undefined` before the abort. */
  get reason(): unknown {
    return this.#reason;
  }

  throwIfAborted(): void {
    if (this.#isAborted) throw this.#reason;
  }

  /** Calls the listeners once, in the order in which they were added. A second call does nothing. */
  abort(reason: unknown): void {
    if (this.#isAborted) return;
    this.#isAborted = true;
    this.#reason = reason;
    const errors: unknown[] = [];
    for (let next = this.#listeners.shift(); next !== undefined; next = this.#listeners.shift()) {
      try {
        next();
      } catch (error) {
        errors.push(error);
      }
    }
    if (errors.length > 0) throw errors[0];
  }

  /** Does nothing after the abort, or for a listener that was already added. */
  addEventListener(_type: "abort", listener: () => void, _options?: { readonly once: true }): void {
    if (!this.#isAborted && !this.#listeners.includes(listener)) this.#listeners.push(listener);
  }

  removeEventListener(_type: "abort", listener: () => void): void {
    const at = this.#listeners.lastIndexOf(listener);
    if (at < 0) return;
    // Nearly always there is only this listener; `splice` takes ten times as long as `pop`.
    if (at === this.#listeners.length - 1) this.#listeners.pop();
    else this.#listeners.splice(at, 1);
  }
}
