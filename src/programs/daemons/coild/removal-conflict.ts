import type { Clock } from "#base/clock";
import type { Logger } from "#base/log";

/** This number of repairs within this time, in milliseconds, counts as a conflict with another program. */
const REPAIRS = 10;
const WINDOW_MS = 60_000;

/**
 * Distinguishes a single removal from a program that removes objects again and again. Such a conflict is logged and counted once, and its
 * repairs are not logged. The conflict ends after a minute without a repair.
 */
export class RemovalConflict {
  readonly #clock: Clock;
  readonly #log: Logger;
  readonly #onConflict: () => void;
  /** Monotonic times of the last {@link REPAIRS} repairs, in milliseconds. */
  #repairedMs: number[] = [];
  #isOn = false;

  constructor(deps: { readonly clock: Clock; readonly log: Logger; readonly onConflict: () => void }) {
    this.#clock = deps.clock;
    this.#log = deps.log;
    this.#onConflict = deps.onConflict;
  }

  /** Records the numbers of repaired objects of one survey. */
  surveyed(repaired: { readonly host: number; readonly links: number; readonly pods: number }): void {
    const now = this.#clock.monotonic();
    const changes = repaired.host + repaired.links + repaired.pods;
    if (changes === 0) {
      const last = this.#repairedMs.at(-1) ?? Number.NEGATIVE_INFINITY;
      if (!this.#isOn || now - last < WINDOW_MS) return;
      this.#isOn = false;
      this.#log.info("no other program removes routes, rules, addresses or links of pods any more");
      return;
    }
    this.#repairedMs = [...this.#repairedMs, now].slice(-REPAIRS);
    if (this.#isOn) return;
    const oldest = this.#repairedMs[0] ?? now;
    if (this.#repairedMs.length < REPAIRS || now - oldest > WINDOW_MS) {
      this.#log.warn("missing routes, rules, addresses or links were restored", { changes, ...repaired });
      return;
    }
    this.#isOn = true;
    this.#onConflict();
    this.#log.error(
      "another program keeps removing routes, rules, addresses or links of pods; coild restores them at most twice a second; find and stop that program (ip monitor shows its changes)",
      { repairs: REPAIRS, withinSeconds: Math.round((now - oldest) / 1000), ...repaired },
    );
  }
}
