import { setImmediate as nextTurn } from "node:timers/promises";
import type { Clock } from "#base/clock";

/** Work done on the event loop between two turns of it, milliseconds. */
const SLICE_MS = 5;

/** Long work in slices, so that the event loop turns between them. */
export class Slice {
  readonly #clock: Clock;
  #startedAt: number;

  constructor(clock: Clock) {
    this.#clock = clock;
    this.#startedAt = clock.monotonic();
  }

  /** True when the loop should turn. */
  over(): boolean {
    return this.#clock.monotonic() - this.#startedAt >= SLICE_MS;
  }

  /** Lets the loop turn and starts the next slice. */
  async yield(): Promise<void> {
    await nextTurn();
    this.#startedAt = this.#clock.monotonic();
  }
}
