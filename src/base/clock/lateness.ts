import type { Clock } from "./system-clock.ts";

/** The time between two measurements, in milliseconds. Each one wakes an idle process. */
const LOOK_MS = 1000;

/** Measures once a second how late timers fire: for so long something has blocked the event loop. Keeps no process alive. */
export class Lateness implements Disposable {
  readonly #clock: Clock;
  readonly #onLook: (lateMs: number) => void;
  #dueAt = 0;
  #cancel: () => void = () => undefined;

  /** `onLook` is called once a second with the milliseconds by which the timer was late, 0 or more. */
  constructor(clock: Clock, onLook: (lateMs: number) => void) {
    this.#clock = clock;
    this.#onLook = onLook;
    this.#wait();
  }

  /** The milliseconds for which the event loop is blocked by the caller's own turn, as far as the next measurement is due. */
  get current(): number {
    return Math.max(0, this.#clock.monotonic() - this.#dueAt);
  }

  [Symbol.dispose](): void {
    this.#cancel();
  }

  #wait(): void {
    this.#dueAt = this.#clock.monotonic() + LOOK_MS;
    const look = (): void => {
      this.#onLook(this.current);
      this.#wait();
    };
    this.#cancel = this.#clock.after(LOOK_MS, look, { unref: true });
  }
}
