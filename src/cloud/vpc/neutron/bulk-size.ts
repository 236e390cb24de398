import type { Clock } from "#base/clock";

/** Ports in one request at most. */
const MAX_SIZE = 50;
/** A request that takes longer makes later ones smaller, in milliseconds; the limit of a request is 60 s. */
const SLOW_MS = 15_000;
/** A request that takes less makes later ones larger again, in milliseconds. */
const QUICK_MS = 5000;

/** The number of ports that one request creates: fewer while the server is slow. */
export class BulkSize {
  readonly #clock: Clock;
  #size = MAX_SIZE;

  constructor({ clock }: { readonly clock: Clock }) {
    this.#clock = clock;
  }

  /** From 1 to 50. */
  get size(): number {
    return this.#size;
  }

  /** Runs a request, whose time decides about later ones. Its own error is passed on. */
  async measure<Value>(request: () => Promise<Value>): Promise<Value> {
    const startMs = this.#clock.monotonic();
    try {
      return await request();
    } finally {
      const tookMs = this.#clock.monotonic() - startMs;
      if (tookMs > SLOW_MS) this.#size = Math.max(1, Math.floor(this.#size / 2));
      else if (tookMs < QUICK_MS) this.#size = Math.min(MAX_SIZE, this.#size + 1);
    }
  }
}
