import type { Clock } from "#base/clock";
import { TokenBucket } from "#base/rate-limit";

/** Limits of the reverse direction for one agent, over all its streams. */
export interface AgentLimits {
  /** Open and pending connections. */
  readonly maxConnections: number;
  /** Dials a second. The burst is twice this. */
  readonly dialRate: number;
}

/** Applies the limits to one agent, on behalf of one of its streams. */
export interface AgentLimiter {
  /** Reserves a place for one connection. Returns its release, which is idempotent; `undefined` if a limit is reached. */
  reserve(): (() => void) | undefined;
  /** One stream of the agent has ended. */
  close(): void;
}

interface Entry {
  readonly rate: TokenBucket;
  streams: number;
  held: number;
}

/** The limits of the reverse direction for each agent. More streams of an agent do not raise them. */
export class AgentLimiters {
  readonly #clock: Clock;
  readonly #limits: AgentLimits;
  readonly #entries = new Map<string, Entry>();

  constructor(clock: Clock, limits: AgentLimits) {
    this.#clock = clock;
    this.#limits = limits;
  }

  /** Agents with a stream or a connection. */
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
