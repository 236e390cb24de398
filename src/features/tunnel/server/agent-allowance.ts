import type { Clock } from "#base/clock";
import { TokenBucket } from "#base/rate-limit";
import type { ReverseLimits } from "./reverse-policy.ts";

/** The limits of the reverse direction that all streams of one agent share. */
export interface Allowance {
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
export class AgentAllowances {
  readonly #clock: Clock;
  readonly #limits: Pick<ReverseLimits, "maxConnections" | "dialRate">;
  readonly #entries = new Map<string, Entry>();

  constructor(clock: Clock, limits: Pick<ReverseLimits, "maxConnections" | "dialRate">) {
    this.#clock = clock;
    this.#limits = limits;
  }

  /** Agents with a stream or a connection. */
  get size(): number {
    return this.#entries.size;
  }

  /** The limits of an agent, for one more of its streams. */
  open(agent: string): Allowance {
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
