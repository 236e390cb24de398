import { type Clock, systemClock } from "#base/clock";
import type { AbortOptions } from "./sleep.ts";

/** Maximum of reasons that are kept between two takes. They are words of the program; a further one is dropped, and its mark counts. */
const MAX_REASONS = 16;

/** The marks since the last {@link Dirty.take}. */
export interface Marks {
  /** The reasons why something may have changed; empty if nothing was marked. At most 16. */
  readonly reasons: ReadonlySet<string>;
  /** The number of all marks so far. State that is read from now on has all that they announced. */
  readonly revision: number;
}

/** A mark that something has changed. Any number of marks before a wait cause one wake-up. */
export class Dirty {
  #marked = false;
  #revision = 0;
  #reasons = new Set<string>();
  #wake: (() => void) | undefined;
  readonly #clock: Clock;

  constructor(clock: Clock = systemClock) {
    this.#clock = clock;
  }

  /** The number of marks so far. */
  get revision(): number {
    return this.#revision;
  }

  /** Marks, for a reason that is a constant of the program. Returns the revision that the mark has begun. */
  mark(reason: string): number {
    this.#marked = true;
    this.#revision += 1;
    if (this.#reasons.size < MAX_REASONS) this.#reasons.add(reason);
    this.#wake?.();
    return this.#revision;
  }

  /** Clears the mark, and returns the marks since the last call. To be called before the state is read. */
  take(): Marks {
    const reasons = this.#reasons;
    this.#marked = false;
    this.#reasons = new Set();
    return { reasons, revision: this.#revision };
  }

  /**
   * Resolves when the mark is set (at once if it is set already), after `atMostMs`, or when the signal aborts; never rejects.
   * The wait clears the mark; its reasons stay until {@link Dirty.take}. Only one caller may wait at a time.
   */
  async wait(options: AbortOptions & { readonly atMostMs: number }): Promise<void> {
    if (!this.#marked && options.signal?.aborted !== true) {
      await new Promise<void>((resolve) => {
        const done = (): void => {
          this.#wake = undefined;
          cancel();
          options.signal?.removeEventListener("abort", done);
          resolve();
        };
        const cancel = this.#clock.after(options.atMostMs, done);
        options.signal?.addEventListener("abort", done, { once: true });
        this.#wake = done;
      });
    }
    this.#marked = false;
  }
}
