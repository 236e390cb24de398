import type { Clock } from "#base/clock";

/** The time between two looks, in milliseconds. */
const LOOK_MS = 1000;
/** For how long a delay is remembered: a Lease is lost 10 s after its last renewal, and this is known after a request of 5 s at most. */
const WINDOW_MS = 20_000;

/** Measures for how long the event loop was blocked of late, by how late timers fire. Holds an entry for each delay of the last 20 s. */
export class BlockedTime {
  readonly #clock: Clock;
  #delays: readonly { readonly atMs: number; readonly ms: number }[] = [];
  #dueAt = 0;
  #cancel: () => void = () => undefined;

  constructor(clock: Clock) {
    this.#clock = clock;
    this.#wait();
  }

  /** Milliseconds of the last 20 s and of the delay that lasts. */
  get lately(): number {
    const now = this.#clock.monotonic();
    const recent = this.#delays.filter(({ atMs }) => atMs > now - WINDOW_MS);
    return recent.reduce((sum, { ms }) => sum + ms, Math.max(0, now - this.#dueAt));
  }

  [Symbol.dispose](): void {
    this.#cancel();
  }

  #wait(): void {
    this.#dueAt = this.#clock.monotonic() + LOOK_MS;
    this.#cancel = this.#clock.after(LOOK_MS, () => this.#look(), { unref: true });
  }

  #look(): void {
    const now = this.#clock.monotonic();
    this.#delays = [
      ...this.#delays.filter(({ atMs }) => atMs > now - WINDOW_MS),
      { atMs: now, ms: Math.max(0, now - this.#dueAt) },
    ];
    this.#wait();
  }
}
