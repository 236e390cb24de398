import type { AgentIdentifiers } from "#wire/konnectivity";
import type { LinkMux } from "../mux/link-mux.ts";
import { type Candidate, candidates, canonicalHost, choose, destinationHost, type Strategy } from "./strategies.ts";

/** One agent stream on the server. */
export class Backend implements Candidate {
  readonly agentID: string;
  readonly identifiers: AgentIdentifiers;
  readonly mux: LinkMux;
  isDraining = false;

  constructor(init: { readonly agentID: string; readonly identifiers: AgentIdentifiers; readonly mux: LinkMux }) {
    this.agentID = init.agentID;
    this.identifiers = init.identifiers;
    this.mux = init.mux;
  }

  get load(): number {
    return this.mux.connections + this.mux.pendingDials;
  }
}

/** The connected agents. Each stream is a backend; if an agent has several streams, the oldest live one is used. */
export class Backends {
  readonly #strategies: readonly Strategy[];
  readonly #random: () => number;
  readonly #streams = new Map<string, Set<Backend>>();

  constructor(strategies: readonly Strategy[], options: { readonly random?: () => number } = {}) {
    this.#strategies = strategies;
    this.#random = options.random ?? Math.random;
  }

  get strategies(): readonly Strategy[] {
    return this.#strategies;
  }

  add(backend: Backend): void {
    const streams = this.#streams.get(backend.agentID) ?? new Set();
    streams.add(backend);
    this.#streams.set(backend.agentID, streams);
  }

  /** Removes this stream; other streams of the agent stay. */
  remove(backend: Backend): void {
    const streams = this.#streams.get(backend.agentID);
    streams?.delete(backend);
    if (streams?.size === 0) this.#streams.delete(backend.agentID);
  }

  /** All streams of all agents. */
  get all(): readonly Backend[] {
    return [...this.#streams.values()].flatMap((streams) => [...streams]);
  }

  /** The number of agents that a strategy can use. For `destHost`, as in Konnectivity, the number of hosts that the agents identify. */
  count(strategy: Strategy): number {
    if (strategy === "destHost") {
      const hosts = this.#live().flatMap(({ identifiers: { ipv4, ipv6, host } }) => [...ipv4, ...ipv6, ...host]);
      return new Set(hosts.map(canonicalHost)).size;
    }
    return candidates(strategy, this.#live(), "").length;
  }

  /** True if the first strategy has an agent (docs/spec/tunnel.md#7.4). */
  get isReady(): boolean {
    const [first] = this.#strategies;
    return first !== undefined && this.count(first) > 0;
  }

  /** Chooses a backend for a destination that is not in `except`; `undefined` if there is none. */
  pick(address: string, except: ReadonlySet<Backend> = new Set()): Backend | undefined {
    const host = destinationHost(address);
    const live = this.#live().filter((backend) => !except.has(backend));
    for (const strategy of this.#strategies) {
      const found = choose(candidates(strategy, live, host), this.#random);
      if (found !== undefined) return found;
    }
    return undefined;
  }

  /** For each agent its oldest stream that does not drain; if all its streams drain, the oldest one. */
  #live(): Backend[] {
    return [...this.#streams.values()].flatMap((streams) => {
      const usable = [...streams].filter(({ mux }) => !mux.isClosed);
      const chosen = usable.find(({ isDraining }) => !isDraining) ?? usable[0];
      return chosen === undefined ? [] : [chosen];
    });
  }
}
