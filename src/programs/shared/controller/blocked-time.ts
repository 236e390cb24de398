import { type Clock, Lateness } from "#base/clock";

/** A delay is remembered for this long, in milliseconds: a Lease is lost 10 s after its last renewal, and this is known after a request of 5 s at most. */
const WINDOW_MS = 20_000;

/** Sums for how long the event loop was blocked of late. Holds an entry for each second of the last 20. */
export class BlockedTime implements Disposable {
  readonly #clock: Clock;
  readonly #lateness: Lateness;
  #delays: readonly { readonly atMs: number; readonly ms: number }[] = [];

  constructor(clock: Clock) {
    this.#clock = clock;
    this.#lateness = new Lateness(clock, (ms) => {
      this.#delays = [...this.#recent(), { atMs: clock.monotonic(), ms }];
    });
  }

  /** Milliseconds of the last 20 s and of the delay that lasts. */
  get lately(): number {
    return this.#recent().reduce((sum, { ms }) => sum + ms, this.#lateness.current);
  }

  [Symbol.dispose](): void {
    this.#lateness[Symbol.dispose]();
  }

  #recent(): readonly { readonly atMs: number; readonly ms: number }[] {
    const now = this.#clock.monotonic();
    return this.#delays.filter(({ atMs }) => atMs > now - WINDOW_MS);
  }
}
