export interface BackoffOptions {
  /** Delays of the first failures, in milliseconds, before the exponential ones; they have no jitter. Default none. */
  readonly firstMs?: readonly number[];
  /** The first exponential delay, in milliseconds. */
  readonly initialMs: number;
  /** The maximum delay, milliseconds, jitter included. */
  readonly maxMs: number;
  /** Growth from one delay to the next. Default 2. */
  readonly factor?: number;
  /** Share of the delay that is random, 0 to 1: the delay lies in [(1 - jitter) * d, d]. Default 0.5. */
  readonly jitter?: number;
  /** Uniform in [0, 1). Default `Math.random`. */
  readonly random?: () => number;
}

/** Exponential delays with jitter. */
export class Backoff {
  readonly #options: Required<BackoffOptions>;
  #attempt = 0;

  constructor(options: BackoffOptions) {
    this.#options = { firstMs: [], factor: 2, jitter: 0.5, random: Math.random, ...options };
  }

  /** The next delay in milliseconds; each call counts one more failure. */
  next(): number {
    const delay = this.delay(this.#attempt);
    this.#attempt += 1;
    return delay;
  }

  /** The delay in milliseconds after `failures` earlier failures (0 for the first). Does not change the count of this object. */
  delay(failures: number): number {
    const { firstMs, initialMs, maxMs, factor, jitter, random } = this.#options;
    const first = firstMs[failures];
    if (first !== undefined) return first;
    const full = Math.min(maxMs, initialMs * factor ** Math.min(failures - firstMs.length, 64));
    return full * (1 - jitter * random());
  }

  /** Call this after a success: the next delay is the first delay again. */
  reset(): void {
    this.#attempt = 0;
  }
}
