import type { Clock } from "#base/clock";
import { TokenBucket } from "#base/rate-limit";

/** Limits of the reverse direction for one agent, over all its streams. */
export interface AgentLimits {
  /** Maximum of open and pending connections. */
  readonly maxConnections: number;
  /** Maximum of dials in a second. The burst is twice this. */
  readonly dialRate: number;
}

/** Applies the limits to one agent, on behalf of one of its streams. */
export interface AgentLimiter {
  /**
   * Reserves a place for one connection. Returns a function that releases the place and is idempotent; `undefined` if a limit is reached.
   */
  reserve(): (() => void) | undefined;
  /** To be called when one stream of the agent has ended. */
  close(): void;
}

interface Entry {
  readonly rate: TokenBucket;
  streams: number;
  held: number;
}

/** The limits of the reverse direction for each agent. If an agent has several streams, its limits are not higher. */
export class AgentLimiters {
  readonly #clock: Clock;
  readonly #limits: AgentLimits;
  readonly #entries = new Map<string, Entry>();

  constructor(clock: Clock, limits: AgentLimits) {
    this.#clock = clock;
    this.#limits = limits;
  }

  /** Number of agents with a stream or a connection. */
  get size(): number {
    return this.#entries.size;
  }

  /** The limits of an agent, for one more of its streams. */
  open(agent: string): AgentLimiter {
    const { maxConnections, dialRate } = this.#limits;
    const entry = this.#entries.get(agent) ?? {
      rate: new TokenBucket({ ratePerSecond: dialRate, burst: 2 * dialRate, clock: this.#clock }),
      streams: 0,
      held: 0,
    };
    this.#entries.set(agent, entry);
    entry.streams += 1;
    const dropIfUnused = (): void => {
      if (entry.streams === 0 && entry.held === 0) this.#entries.delete(agent);
    };
    return {
      reserve: () => {
        if (entry.held >= maxConnections || !entry.rate.tryTake()) return undefined;
        entry.held += 1;
        return once(() => {
          entry.held -= 1;
          dropIfUnused();
        });
      },
      close: once(() => {
        entry.streams -= 1;
        dropIfUnused();
      }),
    };
  }
}

function once(action: () => void): () => void {
  let isDone = false;
  return () => {
    if (isDone) return;
    isDone = true;
    action();
  };
}
