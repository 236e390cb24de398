import type { Clock } from "#base/clock";
import type { Logger } from "#base/log";

/** So many repairs in so long, milliseconds, are the work of a program that fights coild. */
const REPAIRS = 10;
const WINDOW_MS = 60_000;

/**
 * Tells a program that removes something once from one that removes it again and again: the latter is logged and counted once, and each
 * repair is not logged any more. It is over after a minute without a repair.
 */
export class Contest {
  readonly #clock: Clock;
  readonly #log: Logger;
  readonly #onContest: () => void;
  /** Monotonic times of the last {@link REPAIRS} repairs, milliseconds. */
  #repairedMs: number[] = [];
  #isOn = false;

  constructor(deps: { readonly clock: Clock; readonly log: Logger; readonly onContest: () => void }) {
    this.#clock = deps.clock;
    this.#log = deps.log;
    this.#onContest = deps.onContest;
  }

  /** To be called after each survey with what it put back. */
  surveyed(repaired: { readonly host: number; readonly links: number; readonly pods: number }): void {
    const now = this.#clock.monotonic();
    const changes = repaired.host + repaired.links + repaired.pods;
    if (changes === 0) {
      const last = this.#repairedMs.at(-1) ?? Number.NEGATIVE_INFINITY;
      if (!this.#isOn || now - last < WINDOW_MS) return;
      this.#isOn = false;
      this.#log.info("no program removes routes, rules, addresses or links of pods any more");
      return;
    }
    this.#repairedMs = [...this.#repairedMs, now].slice(-REPAIRS);
    if (this.#isOn) return;
    const oldest = this.#repairedMs[0] ?? now;
    if (this.#repairedMs.length < REPAIRS || now - oldest > WINDOW_MS) {
      this.#log.warn("routes, rules, addresses or links had vanished and were put back", { changes, ...repaired });
      return;
    }
    this.#isOn = true;
    this.#onContest();
    this.#log.error(
      "another program keeps removing routes, rules, addresses or links of pods; they are put back at most twice a second; find and stop it (ip monitor shows its work)",
      { repairs: REPAIRS, withinSeconds: Math.round((now - oldest) / 1000), ...repaired },
    );
  }
}
