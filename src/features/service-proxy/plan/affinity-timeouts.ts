/**
 * Maximum of different affinity timeouts in a table. Each is a pair of sets and six rules, which the first packet of each new connection
 * passes, and any user who may write a Service chooses one.
 */
export const MAX_TIMEOUTS = 64;

/** The timeouts that are left where Services have more different ones, in seconds. From 3 on each is at most a third above the one before. */
const STEPS = [
  1, 2, 3, 4, 5, 6, 8, 10, 12, 15, 20, 25, 30, 40, 50, 60, 75, 90, 120, 150, 180, 240, 300, 360, 450, 600, 720, 900,
  1200, 1500, 1800, 2400, 3000, 3600, 4500, 5400, 7200, 9000, 10_800, 14_400, 18_000, 21_600, 28_800, 36_000, 43_200,
  57_600, 72_000, 86_400,
] as const;

/** Rounds a timeout, 1 to 86,400 seconds, up to the next step; 0, which is none, stays 0. Pure. */
export function roundedTimeout(seconds: number): number {
  if (seconds === 0) return 0;
  return STEPS.find((step) => step >= seconds) ?? seconds;
}

/** Counts the affinity timeouts of front ends. */
export class AffinityTimeouts {
  readonly #counts = new Map<number, number>();

  /** More different timeouts are requested than a table may have: they have to be rounded. */
  get isCrowded(): boolean {
    return this.#counts.size > MAX_TIMEOUTS;
  }

  /** 0 counts as none. */
  add(seconds: number): void {
    if (seconds > 0) this.#counts.set(seconds, (this.#counts.get(seconds) ?? 0) + 1);
  }

  /** Undoes one {@link AffinityTimeouts.add}. */
  remove(seconds: number): void {
    const left = (this.#counts.get(seconds) ?? 0) - 1;
    if (left > 0) this.#counts.set(seconds, left);
    else this.#counts.delete(seconds);
  }
}
