import { type Clock, systemClock } from "#base/clock";
import type { AbortOptions } from "./sleep.ts";

/** A mark that something has changed. Any number of marks before a wait cause one wake-up. */
export class Dirty {
  #marked = false;
  #wake: (() => void) | undefined;
  readonly #clock: Clock;

  constructor(clock: Clock = systemClock) {
    this.#clock = clock;
  }

  mark(): void {
    this.#marked = true;
    this.#wake?.();
  }

  /**
   * Resolves when the mark is set (at once if it is set already), after `atMostMs`, or when the signal aborts; never rejects.
   * The wait clears the mark. Only one caller may wait at a time.
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
