import type { AgentIdentifiers } from "#wire/konnectivity";
import type { Pulse } from "../link/session.ts";
import type { LinkMux } from "../mux/link-mux.ts";
import { DrawableSet } from "./drawable-set.ts";
import { type Candidate, choose, destinationHost, hostsOf, rankOf, type Strategy } from "./strategies.ts";

/** One agent stream on the server. */
export class Backend implements Candidate {
  readonly agentID: string;
  readonly identifiers: AgentIdentifiers;
  /** The hosts that the identifiers name, in canonical form. */
  readonly hosts: ReadonlySet<string>;
  readonly mux: LinkMux;
  readonly pulse: Pulse;
  isDraining = false;

  constructor(init: {
    readonly agentID: string;
    readonly identifiers: AgentIdentifiers;
    readonly mux: LinkMux;
    readonly pulse: Pulse;
  }) {
    this.agentID = init.agentID;
    this.identifiers = init.identifiers;
    this.hosts = hostsOf(init.identifiers);
    this.mux = init.mux;
    this.pulse = init.pulse;
  }

  get load(): number {
    return this.mux.connections + this.mux.pendingDials;
  }

  get isInDoubt(): boolean {
    return this.pulse.isInDoubt;
  }
}

/** An agent with its streams, from the oldest on. */
class Agent {
  readonly streams = new Set<Backend>();
  /** Hosts that several of its streams have: the number of streams besides one. Absent if there are none, as for nearly all agents. */
  #repeats: Map<string, number> | undefined;

  /** One more stream has a host that the agent has already. */
  repeat(host: string): void {
    this.#repeats ??= new Map();
    this.#repeats.set(host, (this.#repeats.get(host) ?? 0) + 1);
  }

  /** One stream less has the host. Returns false if it was the only one. */
  unrepeat(host: string): boolean {
    const count = this.#repeats?.get(host);
    if (count === undefined) return false;
    if (count > 1) this.#repeats?.set(host, count - 1);
    else this.#repeats?.delete(host);
    if (this.#repeats?.size === 0) this.#repeats = undefined;
    return true;
  }

  /** The oldest of its streams with the lowest rank; `undefined` if all are closed. */
  get backend(): Backend | undefined {
    let best: Backend | undefined;
    for (const stream of this.streams) {
      if (stream.mux.isClosed) continue;
      if (rankOf(stream) === 0) return stream;
      if (best === undefined || rankOf(stream) < rankOf(best)) best = stream;
    }
    return best;
  }
}

/**
 * The connected agents. Each stream is a backend; if an agent has several streams, the oldest live one is used. A choice takes the same time for
 * one agent and for thousands, unless most of them drain or are in doubt.
 */
export class Backends {
  readonly #strategies: readonly Strategy[];
  readonly #random: () => number;
  readonly #onChange: () => void;
  readonly #agents = new Map<string, Agent>();
  /** All agents, those of which a stream has the default route, and those of which a stream has a host, which only `destHost` needs. */
  readonly #all = new DrawableSet<Agent>();
  readonly #defaultRoutes = new DrawableSet<Agent>();
  readonly #byHost = new Map<string, DrawableSet<Agent>>();

  constructor(
    strategies: readonly Strategy[],
    options: {
      readonly random?: () => number;
      /** Called after each stream that comes or goes. */
      readonly onChange?: (() => void) | undefined;
    } = {},
  ) {
    this.#strategies = strategies;
    this.#random = options.random ?? Math.random;
    this.#onChange = options.onChange ?? (() => undefined);
  }

  get #usesHosts(): boolean {
    return this.#strategies.includes("destHost");
  }

  /** True if no agent is connected. */
  get isEmpty(): boolean {
    return this.#agents.size === 0;
  }

  get strategies(): readonly Strategy[] {
    return this.#strategies;
  }

  /** The number of streams of an agent. */
  streamsOf(agentID: string): number {
    return this.#agents.get(agentID)?.streams.size ?? 0;
  }

  add(backend: Backend): void {
    const agent = this.#agents.get(backend.agentID) ?? new Agent();
    this.#agents.set(backend.agentID, agent);
    agent.streams.add(backend);
    this.#all.add(agent);
    if (backend.identifiers.defaultRoute) this.#defaultRoutes.add(agent);
    for (const host of this.#usesHosts ? backend.hosts : []) {
      const agents = this.#byHost.get(host) ?? new DrawableSet();
      this.#byHost.set(host, agents);
      if (!agents.add(agent)) agent.repeat(host);
    }
    this.#onChange();
  }

  /**
   * To be called when a stream has lived for a while. An agent that opens a further stream has often lost those before it, which this side does not know
   * yet: those that are silent are probed, and are used again when they have answered.
   */
  probeEarlier(backend: Backend): void {
    const streams = this.#agents.get(backend.agentID)?.streams;
    if (streams?.has(backend) !== true) return;
    for (const stream of streams) {
      if (stream === backend) return;
      if (!stream.mux.isClosed) stream.pulse.probeIfSilent();
    }
  }

  /** Removes this stream; other streams of the agent stay. */
  remove(backend: Backend): void {
    const agent = this.#agents.get(backend.agentID);
    if (agent === undefined || !agent.streams.delete(backend)) return;
    const rest = [...agent.streams];
    if (!rest.some(({ identifiers }) => identifiers.defaultRoute)) this.#defaultRoutes.delete(agent);
    for (const host of this.#usesHosts ? backend.hosts : []) {
      if (agent.unrepeat(host)) continue;
      const agents = this.#byHost.get(host);
      agents?.delete(agent);
      if (agents?.size === 0) this.#byHost.delete(host);
    }
    if (rest.length === 0) {
      this.#agents.delete(backend.agentID);
      this.#all.delete(agent);
    }
    this.#onChange();
  }

  /** All streams of all agents. */
  get all(): readonly Backend[] {
    return [...this.#agents.values()].flatMap(({ streams }) => [...streams]);
  }

  /** The number of agents that a strategy can use. For `destHost`, as in Konnectivity, the number of hosts that the agents identify. */
  count(strategy: Strategy): number {
    const live = this.#live();
    if (strategy === "destHost") return new Set(live.flatMap(({ hosts }) => [...hosts])).size;
    return live.filter((backend) => suits(backend, strategy, "")).length;
  }

  /** True if the first strategy has an agent (docs/spec/tunnel.md#7.4). */
  get isReady(): boolean {
    const [first] = this.#strategies;
    for (const { backend } of this.#agents.values()) {
      if (backend === undefined) continue;
      if (first === "destHost" ? backend.hosts.size > 0 : first !== undefined && suits(backend, first, "")) return true;
    }
    return false;
  }

  /** Chooses a backend for a destination that is not in `except`; `undefined` if there is none. */
  pick(address: string, except: readonly Backend[] = []): Backend | undefined {
    const host = destinationHost(address);
    for (const strategy of this.#strategies) {
      const eligible = ({ backend }: Agent): Backend | undefined =>
        backend !== undefined && suits(backend, strategy, host) && !except.includes(backend) ? backend : undefined;
      const found = this.#draw(this.#candidates(strategy, host), eligible);
      if (found !== undefined) return found;
    }
    return undefined;
  }

  #candidates(strategy: Strategy, host: string): DrawableSet<Agent> | undefined {
    if (strategy === "destHost") return this.#byHost.get(host);
    return strategy === "default" ? this.#all : this.#defaultRoutes;
  }

  /** Draws two agents, or looks at all if chance gives none that may be used and has the lowest rank. */
  #draw(agents: DrawableSet<Agent> | undefined, eligible: (agent: Agent) => Backend | undefined): Backend | undefined {
    if (agents === undefined) return undefined;
    const fresh = (agent: Agent): Backend | undefined => {
      const backend = eligible(agent);
      return backend !== undefined && rankOf(backend) === 0 ? backend : undefined;
    };
    const drawn = [agents.draw(fresh, this.#random), agents.draw(fresh, this.#random)];
    const [first, second] = drawn;
    if (first !== undefined && second !== undefined) return second.load < first.load ? second : first;
    return choose(
      [...agents].flatMap((agent) => eligible(agent) ?? []),
      this.#random,
    );
  }

  #live(): Backend[] {
    return [...this.#agents.values()].flatMap(({ backend }) => backend ?? []);
  }
}

/** Whether a strategy allows an agent for a destination. */
function suits({ identifiers, hosts }: Backend, strategy: Strategy, host: string): boolean {
  if (strategy === "destHost") return hosts.has(host);
  return strategy === "default" || identifiers.defaultRoute;
}
