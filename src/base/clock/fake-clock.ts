import type { Clock } from "./system-clock.ts";

interface Timer {
  readonly at: number;
  readonly order: number;
  readonly callback: () => void;
}

/** A clock that moves only by {@link FakeClock.advance}. Timers fire in order of their time, then of their creation. */
export class FakeClock implements Clock {
  #monotonic = 0;
  #wallOffset: number;
  #order = 0;
  readonly #timers = new Set<Timer>();

  constructor(startMs = Date.UTC(2026, 0, 1)) {
    this.#wallOffset = startMs;
  }

  now(): number {
    return this.#wallOffset + this.#monotonic;
  }

  monotonic(): number {
    return this.#monotonic;
  }

  after(delayMs: number, callback: () => void): () => void {
    const timer: Timer = { at: this.#monotonic + Math.max(0, delayMs), order: this.#order, callback };
    this.#order += 1;
    this.#timers.add(timer);
    return () => this.#timers.delete(timer);
  }

  /** The number of timers that have not fired. */
  get pending(): number {
    return this.#timers.size;
  }

  /** Moves the wall clock alone, as NTP does. */
  jumpWall(byMs: number): void {
    this.#wallOffset += byMs;
  }

  /** Moves time forward, fires the timers that are due, and lets promise reactions run between them. */
  async advance(byMs: number): Promise<void> {
    const until = this.#monotonic + byMs;
    await settle();
    for (let next = this.#next(until); next !== undefined; next = this.#next(until)) {
      this.#timers.delete(next);
      this.#monotonic = Math.max(this.#monotonic, next.at);
      next.callback();
      await settle();
    }
    this.#monotonic = until;
  }

  #next(until: number): Timer | undefined {
    let best: Timer | undefined;
    for (const timer of this.#timers) {
      if (timer.at > until) continue;
      if (best === undefined || timer.at < best.at || (timer.at === best.at && timer.order < best.order)) best = timer;
    }
    return best;
  }
}

/** Lets chains of promise reactions run until they wait for a timer or for I/O. */
async function settle(): Promise<void> {
  for (let turn = 0; turn < 3; turn += 1) await new Promise<void>((resolve) => setImmediate(resolve));
}
