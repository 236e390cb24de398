import { Backoff } from "#base/async";
import type { Clock } from "#base/clock";

/** Disturbances within {@link WINDOW_MS} that make a conflict; fewer disturbances count as single changes. */
export const MIN_DISTURBANCES = 5;
/** Time in which disturbances are counted, in milliseconds. */
export const WINDOW_MS = 60_000;
/** First pause in a conflict, in milliseconds; it doubles up to {@link MAX_PAUSE_MS}. */
export const MIN_PAUSE_MS = 1000;
/** Longest pause, in milliseconds. */
export const MAX_PAUSE_MS = 30_000;
/** A conflict ends after this time without a disturbance, in milliseconds: several of the longest pauses. */
export const CALM_MS = 120_000;

/**
 * Detects a program that keeps changing our tables, such as kube-proxy or a second proxy of this project (docs/spec/service-proxy.md#2.12),
 * and spaces out our repairs. Without these pauses, both programs would undo each other's changes without end.
 */
export class ConflictBackoff {
  readonly #clock: Clock;
  /** Times of disturbances within the window, monotonic milliseconds; at most {@link MIN_DISTURBANCES}. */
  #disturbances: number[] = [];
  readonly #backoff = new Backoff({ initialMs: MIN_PAUSE_MS, maxMs: MAX_PAUSE_MS, jitter: 0 });
  #pauseMs = 0;

  constructor(clock: Clock) {
    this.#clock = clock;
  }

  /** True while another program keeps changing our tables. */
  get isOn(): boolean {
    return this.#pauseMs > 0;
  }

  /** True from a disturbance until {@link ConflictBackoff.update} finds that there was none for {@link CALM_MS}. */
  get isDisturbed(): boolean {
    return this.#disturbances.length > 0;
  }

  /** Pause until the next repair, in milliseconds; 0 without a conflict. */
  get pauseMs(): number {
    return this.#pauseMs;
  }

  /** Records that another program changed one of our tables. */
  disturbed(): void {
    const now = this.#clock.monotonic();
    this.#disturbances = [...this.#disturbances.filter((at) => now - at < WINDOW_MS), now].slice(-MIN_DISTURBANCES);
    if (this.isOn || this.#disturbances.length >= MIN_DISTURBANCES) this.#pauseMs = this.#backoff.next();
  }

  /** Ends the conflict if there was no disturbance for {@link CALM_MS}. Has to be called regularly. */
  update(): void {
    const last = this.#disturbances.at(-1) ?? Number.NEGATIVE_INFINITY;
    if (this.#clock.monotonic() - last < CALM_MS) return;
    this.#pauseMs = 0;
    this.#backoff.reset();
    this.#disturbances = [];
  }
}
