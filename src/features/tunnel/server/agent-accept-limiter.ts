import type { Clock } from "#base/clock";

/** Limits how many agents wait: at most the number that is admitted in this time, in seconds. */
const MAX_WAIT_SECONDS = 60;
/** Times that differ by less than this count as equal, in milliseconds. */
const EPSILON_MS = 0.001;

/** The stream of an agent that waits to be admitted. */
export interface PendingAgent {
  readonly peer: { readonly address: string };
  readonly isGone: boolean;
  /** Calls `callback` once, when the stream ends. */
  whenGone(callback: () => void): void;
}

interface Waiter {
  readonly host: string;
  readonly answer: (isAdmitted: boolean) => void;
}

/**
 * Limits the rate at which agents are admitted, because all agents connect at once after a server has started (docs/spec/tunnel.md#11).
 * Agents wait instead of being refused. Each address has its own queue, and the queues are served in round robin, so that an agent does not
 * wait for a thousand agents behind another address. An agent that closes its stream is removed from its queue.
 */
export class AgentAcceptLimiter {
  readonly #clock: Clock;
  readonly #intervalMs: number;
  readonly #burstMs: number;
  readonly #maxWaiting: number;
  /** The queues by address, in the order in which they are served; no queue is empty. */
  readonly #queues = new Map<string, Set<Waiter>>();
  #waiting = 0;
  #isTimerSet = false;
  /** When the next agent would be admitted without bursts, `Clock.monotonic` milliseconds. */
  #dueAt: number;

  /** `perSecond`: number of agents that are admitted in a second; the burst is twice this number. */
  constructor(clock: Clock, options: { readonly perSecond: number }) {
    this.#clock = clock;
    this.#intervalMs = 1000 / options.perSecond;
    this.#burstMs = (2 * options.perSecond - 1) * this.#intervalMs;
    this.#maxWaiting = MAX_WAIT_SECONDS * options.perSecond;
    this.#dueAt = clock.monotonic() - this.#burstMs;
  }

  /** Number of agents that wait. */
  get waiting(): number {
    return this.#waiting;
  }

  /** Resolves with true when the agent is admitted; with false if too many wait, or once its stream has ended. */
  admit(agent: PendingAgent): Promise<boolean> {
    if (agent.isGone) return Promise.resolve(false);
    if (this.#waiting === 0 && this.#take()) return Promise.resolve(true);
    const host = hostOf(agent.peer.address);
    if (this.#waiting >= this.#maxWaiting && !this.#evictFor(host)) return Promise.resolve(false);
    const { promise, resolve } = Promise.withResolvers<boolean>();
    const waiter: Waiter = { host, answer: resolve };
    const queue = this.#queues.get(host) ?? new Set();
    this.#queues.set(host, queue.add(waiter));
    this.#waiting += 1;
    agent.whenGone(() => this.#remove(waiter, false));
    if (!this.#isTimerSet) this.#serve();
    return promise;
  }

  /** Admits agents that are due, and sets a timer for the next one. */
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

  /** The agent that is next: the first of the first queue. */
  #next(): Waiter | undefined {
    for (const queue of this.#queues.values()) for (const waiter of queue) return waiter;
    return undefined;
  }

  /** Makes room if too many agents wait: refuses the last agent of the longest queue. Returns false if that would be the new agent. */
  #evictFor(host: string): boolean {
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

  #remove(waiter: Waiter, isAdmitted: boolean): void {
    const queue = this.#queues.get(waiter.host);
    if (queue?.delete(waiter) !== true) return;
    this.#waiting -= 1;
    if (queue.size === 0) this.#queues.delete(waiter.host);
    waiter.answer(isAdmitted);
  }
}

/** The address without the port. */
function hostOf(address: string): string {
  return address.replace(/:\d+$/, "");
}
