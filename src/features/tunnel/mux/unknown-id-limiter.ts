import type { Clock } from "#base/clock";
import type { TunnelId } from "#wire/konnectivity";
import { MAX_UNKNOWN_REPLIES } from "./options.ts";

const WINDOW_MS = 1000;

/**
 * Limits the answers to packets of unknown connections: in each second, one answer for each id and 1,024 answers for all ids together
 * (docs/spec/tunnel.md#5.2).
 */
export class UnknownIdLimiter {
  readonly #clock: Clock;
  readonly #answered = new Set<TunnelId>();
  #since = Number.NEGATIVE_INFINITY;

  constructor(clock: Clock) {
    this.#clock = clock;
  }

  /** True if a packet of this id may be answered: at most once in a second. */
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
