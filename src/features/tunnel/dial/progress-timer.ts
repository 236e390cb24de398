import type { Clock } from "#base/clock";

/** A timer that fires when something has not grown for its whole time; while it grows the timer starts again. */
export class ProgressTimer {
  readonly #clock: Clock;
  #cancel: (() => void) | undefined;

  constructor(clock: Clock) {
    this.#clock = clock;
  }

  /** Starts, in place of what ran before. `progress` is read now and at each end of `ms`. */
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
