import type { Clock } from "#base/clock";

/** So many wait at most as are answered in this time, seconds. */
const MAX_WAIT_SECONDS = 60;
/** Streams of one address that wait at once. */
const MAX_WAITING_PER_ADDRESS = 4;
/** Floating-point times that differ by less are equal, milliseconds. */
const EPSILON_MS = 0.001;

/** A stream that wants to be answered. */
export interface Comer {
  readonly peer: { readonly address: string };
  /** Asked again whenever it matters: who is gone holds no place. */
  readonly isGone: boolean;
}

interface Waiter {
  readonly comer: Comer;
  readonly host: string;
  readonly answer: (isTurn: boolean) => void;
}

/**
 * Spreads the agents that all come at once after a server has started (spec tunnel 11): they wait in a queue instead of being
 * refused. Those that give up meanwhile cost the others nothing.
 */
export class AcceptPace {
  readonly #clock: Clock;
  readonly #intervalMs: number;
  readonly #burstMs: number;
  readonly #maxWaiting: number;
  readonly #waiting = new Set<Waiter>();
  readonly #byHost = new Map<string, Set<Waiter>>();
  #isTimerSet = false;
  /** When the next one would be due if there were no bursts. */
  #dueAt: number;

  /** `perSecond` agents a second, twice as many at once. */
  constructor(clock: Clock, options: { readonly perSecond: number }) {
    this.#clock = clock;
    this.#intervalMs = 1000 / options.perSecond;
    this.#burstMs = (2 * options.perSecond - 1) * this.#intervalMs;
    this.#maxWaiting = MAX_WAIT_SECONDS * options.perSecond;
    this.#dueAt = clock.monotonic() - this.#burstMs;
  }

  /** Streams that wait, those that have given up unnoticed included. */
  get waiting(): number {
    return this.#waiting.size;
  }

  /** Resolves when it is the caller's turn: true; false where too many wait, at once, or where the caller is gone. */
  turn(comer: Comer): Promise<boolean> {
    if (this.#waiting.size === 0 && this.#take()) return Promise.resolve(true);
    const host = hostOf(comer.peer.address);
    const siblings = this.#byHost.get(host) ?? new Set();
    this.#dropGone(siblings);
    if (siblings.size >= MAX_WAITING_PER_ADDRESS) return Promise.resolve(false);
    if (this.#waiting.size >= this.#maxWaiting) this.#dropGone(this.#waiting);
    if (this.#waiting.size >= this.#maxWaiting) return Promise.resolve(false);
    const { promise, resolve } = Promise.withResolvers<boolean>();
    const waiter: Waiter = { comer, host, answer: resolve };
    this.#waiting.add(waiter);
    this.#byHost.set(host, siblings.add(waiter));
    if (!this.#isTimerSet) this.#serve();
    return promise;
  }

  /** Answers those whose time has come, and comes back for the next. */
  #serve(): void {
    for (const waiter of this.#waiting) {
      if (!waiter.comer.isGone && !this.#take()) {
        this.#isTimerSet = true;
        const wake = (): void => {
          this.#isTimerSet = false;
          this.#serve();
        };
        const waitMs = this.#dueAt - this.#burstMs - this.#clock.monotonic();
        this.#clock.after(Math.max(0, waitMs), wake, { unref: true });
        return;
      }
      this.#remove(waiter, !waiter.comer.isGone);
    }
  }

  #take(): boolean {
    const now = this.#clock.monotonic();
    if (now + EPSILON_MS < this.#dueAt - this.#burstMs) return false;
    this.#dueAt = Math.max(now, this.#dueAt) + this.#intervalMs;
    return true;
  }

  #dropGone(waiters: ReadonlySet<Waiter>): void {
    for (const waiter of waiters) if (waiter.comer.isGone) this.#remove(waiter, false);
  }

  #remove(waiter: Waiter, isTurn: boolean): void {
    this.#waiting.delete(waiter);
    const siblings = this.#byHost.get(waiter.host);
    siblings?.delete(waiter);
    if (siblings?.size === 0) this.#byHost.delete(waiter.host);
    waiter.answer(isTurn);
  }
}

/** Without the port. */
function hostOf(address: string): string {
  return address.replace(/:\d+$/, "");
}
