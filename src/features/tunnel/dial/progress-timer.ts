import type { Clock } from "#base/clock";

/** A timer that fires when a number has not grown for `ms`. If the number has grown by then, the timer starts again. */
export class ProgressTimer {
  readonly #clock: Clock;
  #cancel: (() => void) | undefined;

  constructor(clock: Clock) {
    this.#clock = clock;
  }

  /** Starts the timer, and replaces a running one. `progress` is read now and after each `ms`. */
  start(ms: number, progress: () => number, onStuck: () => void): void {
    this.stop();
    const before = progress();
    this.#cancel = this.#clock.after(ms, () => {
      this.#cancel = undefined;
      if (progress() === before) onStuck();
      else this.start(ms, progress, onStuck);
    });
  }

  stop(): void {
    this.#cancel?.();
    this.#cancel = undefined;
  }
}
