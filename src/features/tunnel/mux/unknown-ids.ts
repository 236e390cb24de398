import type { Clock } from "#base/clock";
import type { TunnelId } from "#wire/konnectivity";
import { MAX_UNKNOWN_REPLIES } from "./options.ts";

const WINDOW_MS = 1000;

/** Says which packets of unknown connections are answered: one an id a second, and not too many in all (docs/spec/tunnel.md#5.2). */
export class UnknownIds {
  readonly #clock: Clock;
  readonly #answered = new Set<TunnelId>();
  #since = Number.NEGATIVE_INFINITY;

  constructor(clock: Clock) {
    this.#clock = clock;
  }

  /** True at most once an id and second. */
  mayAnswer(id: TunnelId): boolean {
    const now = this.#clock.monotonic();
    if (now - this.#since >= WINDOW_MS) {
      this.#answered.clear();
      this.#since = now;
    }
    if (this.#answered.has(id) || this.#answered.size >= MAX_UNKNOWN_REPLIES) return false;
    this.#answered.add(id);
    return true;
  }
}
