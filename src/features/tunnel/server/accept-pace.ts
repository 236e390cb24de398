import type { Clock } from "#base/clock";

/** So many wait at most as are answered in this time, seconds. */
const MAX_WAIT_SECONDS = 60;
/** Floating-point times that differ by less are equal, milliseconds. */
const EPSILON_MS = 0.001;

/** A stream that wants to be answered. */
export interface Comer {
  readonly peer: { readonly address: string };
  readonly isGone: boolean;
  /** Calls once, when the stream ends. */
  whenGone(callback: () => void): void;
}

interface Waiter {
  readonly host: string;
  readonly answer: (isTurn: boolean) => void;
}

/**
 * Spreads the agents that all come at once after a server has started (docs/spec/tunnel.md#11): they wait in a queue instead of being
 * refused, each address in a queue of its own, and the addresses take turns. So a thousand agents behind one address wait, and one
 * elsewhere does not wait for them. Those that give up meanwhile cost the others nothing.
 */
export class AcceptPace {
  readonly #clock: Clock;
  readonly #intervalMs: number;
  readonly #burstMs: number;
  readonly #maxWaiting: number;
  /** By address, in the order of their turns; none is empty. */
  readonly #queues = new Map<string, Set<Waiter>>();
  #waiting = 0;
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

  /** Streams that wait. */
  get waiting(): number {
    return this.#waiting;
  }

  /** Resolves when it is the caller's turn: true; false where too many wait, at once, or where the caller is gone. */
  turn(comer: Comer): Promise<boolean> {
    if (comer.isGone) return Promise.resolve(false);
    if (this.#waiting === 0 && this.#take()) return Promise.resolve(true);
    const host = hostOf(comer.peer.address);
    if (this.#waiting >= this.#maxWaiting && !this.#makeRoomFor(host)) return Promise.resolve(false);
    const { promise, resolve } = Promise.withResolvers<boolean>();
    const waiter: Waiter = { host, answer: resolve };
    const queue = this.#queues.get(host) ?? new Set();
    this.#queues.set(host, queue.add(waiter));
    this.#waiting += 1;
    comer.whenGone(() => this.#remove(waiter, false));
    if (!this.#isTimerSet) this.#serve();
    return promise;
  }

  /** Answers those whose time has come, and comes back for the next. */
  #serve(): void {
    for (let waiter = this.#next(); waiter !== undefined; waiter = this.#next()) {
      if (!this.#take()) {
        this.#isTimerSet = true;
        const wake = (): void => {
          this.#isTimerSet = false;
          this.#serve();
        };
        const waitMs = this.#dueAt - this.#burstMs - this.#clock.monotonic();
        this.#clock.after(Math.max(0, waitMs), wake, { unref: true });
        return;
      }
      const { host } = waiter;
      this.#remove(waiter, true);
      const queue = this.#queues.get(host);
      if (queue === undefined) continue;
      this.#queues.delete(host);
      this.#queues.set(host, queue);
    }
  }

  /** Whose turn it is: the first of the first queue. */
  #next(): Waiter | undefined {
    for (const queue of this.#queues.values()) for (const waiter of queue) return waiter;
    return undefined;
  }

  /** When too many wait, the last of the longest queue comes again later; false where that would be the newcomer. */
  #makeRoomFor(host: string): boolean {
    let longest: ReadonlySet<Waiter> = new Set();
    for (const queue of this.#queues.values()) if (queue.size > longest.size) longest = queue;
    if ((this.#queues.get(host)?.size ?? 0) + 1 >= longest.size) return false;
    const last = [...longest].at(-1);
    if (last !== undefined) this.#remove(last, false);
    return true;
  }

  #take(): boolean {
    const now = this.#clock.monotonic();
    if (now + EPSILON_MS < this.#dueAt - this.#burstMs) return false;
    this.#dueAt = Math.max(now, this.#dueAt) + this.#intervalMs;
    return true;
  }

  #remove(waiter: Waiter, isTurn: boolean): void {
    const queue = this.#queues.get(waiter.host);
    if (queue?.delete(waiter) !== true) return;
    this.#waiting -= 1;
    if (queue.size === 0) this.#queues.delete(waiter.host);
    waiter.answer(isTurn);
  }
}

/** Without the port. */
function hostOf(address: string): string {
  return address.replace(/:\d+$/, "");
}
