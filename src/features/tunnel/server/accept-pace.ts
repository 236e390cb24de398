import { sleep } from "#base/async";
import type { Clock } from "#base/clock";
import { RateLimit } from "../mux/rate-limit.ts";

/** Who would have to wait longer than this is told to come again, seconds. */
const MAX_WAIT_SECONDS = 60;

/** Spreads the agents that all come at once after a server has started (spec tunnel 11): they wait instead of being refused. */
export class AcceptPace {
  readonly #clock: Clock;
  readonly #limit: RateLimit;
  readonly #maxWaiting: number;
  #waiting = 0;

  /** `perSecond` agents a second, twice as many at once. */
  constructor(clock: Clock, options: { readonly perSecond: number }) {
    this.#clock = clock;
    this.#limit = new RateLimit(clock, { perSecond: options.perSecond, burst: 2 * options.perSecond });
    this.#maxWaiting = MAX_WAIT_SECONDS * options.perSecond;
  }

  /** Resolves when it is the caller's turn: true, or false at once where that would take too long. */
  async turn(): Promise<boolean> {
    // Whoever is refused takes no turn from others.
    if (this.#waiting >= this.#maxWaiting) return false;
    const waitMs = this.#limit.reserve();
    if (waitMs === 0) return true;
    this.#waiting += 1;
    try {
      await sleep(waitMs, { clock: this.#clock });
    } finally {
      this.#waiting -= 1;
    }
    return true;
  }
}
