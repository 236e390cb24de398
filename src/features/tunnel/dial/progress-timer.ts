import type { Clock } from "#base/clock";

/** A longer limit, in milliseconds, for as long as there is a reason to wait. */
export interface Patience {
  readonly ms: number;
  readonly applies: () => boolean;
}

/** The interval at which patience is asked at most, in milliseconds. */
const PATIENT_MS = 1000;
const NONE: Patience = { ms: 0, applies: () => false };

/** A timer that fires when a number has not grown for `ms`. If the number has grown by then, the timer starts again. */
export class ProgressTimer {
  readonly #clock: Clock;
  #cancel: (() => void) | undefined;

  constructor(clock: Clock) {
    this.#clock = clock;
  }

  /** Starts the timer, and replaces a running one. `progress` is read now and after each `ms`; `patience` is asked when it has not grown. */
  start(ms: number, progress: () => number, onStuck: () => void, patience: Patience = NONE): void {
    this.stop();
    let before = progress();
    let since = this.#clock.monotonic();
    const check = (): void => {
      this.#cancel = undefined;
      const present = progress();
      const now = this.#clock.monotonic();
      if (present === before && !(patience.applies() && now - since < patience.ms)) {
        onStuck();
        return;
      }
      const delayMs = present === before ? Math.max(ms, PATIENT_MS) : ms;
      if (present !== before) since = now;
      before = present;
      this.#cancel = this.#clock.after(delayMs, check);
    };
    this.#cancel = this.#clock.after(ms, check);
  }

  stop(): void {
    this.#cancel?.();
    this.#cancel = undefined;
  }
}
