import { setImmediate as nextTurn } from "node:timers/promises";
import { type Clock, systemClock } from "#base/clock";

/** Default length of a slice, in milliseconds. */
const SLICE_MS = 5;

/**
 * Divides long work into slices, so that the event loop runs other tasks between them.
 *
 * ```ts
 * const slice = new TimeSlice();
 * for (const one of many) {
 *   handle(one);
 *   if (slice.isOver) await slice.yield();
 * }
 * ```
 */
export class TimeSlice {
  readonly #clock: Clock;
  readonly #lengthMs: number;
  #startedAt: number;

  constructor(options: { readonly clock?: Clock; readonly lengthMs?: number } = {}) {
    this.#clock = options.clock ?? systemClock;
    this.#lengthMs = options.lengthMs ?? SLICE_MS;
    this.#startedAt = this.#clock.monotonic();
  }

  /** True if the work has used its slice and should {@link yield}. */
  get isOver(): boolean {
    return this.#clock.monotonic() - this.#startedAt >= this.#lengthMs;
  }

  /** Resolves in a later iteration of the event loop; the next slice starts then. */
  async yield(): Promise<void> {
    await nextTurn();
    this.#startedAt = this.#clock.monotonic();
  }
}
