import { Backoff } from "#base/async";
import { type Clock, systemClock } from "#base/clock";

/** So many disturbances within {@link WINDOW_MS} are somebody's work, and no accident. */
export const MIN_DISTURBANCES = 5;
/** Milliseconds. */
export const WINDOW_MS = 60_000;
/** First pause of a contest, milliseconds; it doubles up to {@link MAX_PAUSE_MS}. */
export const MIN_PAUSE_MS = 1000;
/** Longest pause, milliseconds. */
export const MAX_PAUSE_MS = 30_000;
/** Without a disturbance for so long a contest is over, milliseconds: several of the longest pauses. */
export const CALM_MS = 120_000;

/**
 * Tells a program that works on our tables all the time, such as kube-proxy beside us or a second one of ours, from somebody who changed
 * something once (docs/spec/service-proxy.md#2.12). Both would go on repairing what the other does; so one of them slows down.
 */
export class Contest {
  readonly #clock: Clock;
  /** Monotonic milliseconds; of the window alone, at most {@link MIN_DISTURBANCES}. */
  #disturbances: number[] = [];
  readonly #backoff = new Backoff({ initialMs: MIN_PAUSE_MS, maxMs: MAX_PAUSE_MS, jitter: 0 });
  #pauseMs = 0;

  constructor(clock: Clock = systemClock) {
    this.#clock = clock;
  }

  /** Whether there is one now. */
  get isOn(): boolean {
    return this.#pauseMs > 0;
  }

  /** Something was found changed lately. */
  get isDisturbed(): boolean {
    return this.#disturbances.length > 0;
  }

  /** Until the next repair, milliseconds; 0 without a contest. */
  get pauseMs(): number {
    return this.#pauseMs;
  }

  /** Something of ours was found changed. */
  disturbed(): void {
    const now = this.#clock.monotonic();
    this.#disturbances = [...this.#disturbances.filter((at) => now - at < WINDOW_MS), now].slice(-MIN_DISTURBANCES);
    if (this.isOn || this.#disturbances.length >= MIN_DISTURBANCES) this.#pauseMs = this.#backoff.next();
  }

  /** Time has passed: a contest may be over. */
  look(): void {
    const last = this.#disturbances.at(-1) ?? Number.NEGATIVE_INFINITY;
    if (this.#clock.monotonic() - last < CALM_MS) return;
    this.#pauseMs = 0;
    this.#backoff.reset();
    this.#disturbances = [];
  }
}
