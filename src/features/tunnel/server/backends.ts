import type { AgentIdentifiers } from "#wire/konnectivity";
import { hostsOf } from "../identity/hosts.ts";
import type { Pulse } from "../link/session.ts";
import type { LinkMux } from "../mux/link-mux.ts";
import { ArrivalSet } from "./arrival-set.ts";
import { DialHealth } from "./dial-health.ts";
import { DrawableSet } from "./drawable-set.ts";
import { type Candidate, choose, destinationHost, rankOf, type Strategy } from "./strategies.ts";

/** `--dial-timeout` of an agent that does not name it, as Konnectivity's, in milliseconds. */
const DIAL_TIMEOUT_MS = 5000;
/** An answer is late when it comes so much later than the agent dials, in milliseconds. */
const ANSWER_SLACK_MS = 2000;
/** One dial of so many is tried at an agent that answers none, while others do. */
const TRIAL_DIALS = 64;

/** One agent stream on the server. */
export class Backend implements Candidate {
  readonly agentID: string;
  /** The identity of its credential (docs/spec/tunnel.md#10.1); absent without rules. */
  readonly identity: string | undefined;
  /** Streams with the same key are of one agent: agentIDs of different identities have nothing to do with each other. */
  readonly key: string;
  /** False: it gets no dials to hosts that it does not identify. */
  readonly anyHost: boolean;
  readonly identifiers: AgentIdentifiers;
  /** The hosts that it gets dials to, in canonical form: those that the identifiers name, with rules as far as it has them. */
  hosts: ReadonlySet<string>;
  readonly mux: LinkMux;
  readonly pulse: Pulse;
  readonly health = new DialHealth();
  /** The answer to a dial is late after this time, in milliseconds. */
  readonly answerMs: number;
  /** Tells the agent to connect to another server and to keep this stream; absent if it would drop its connections, as Konnectivity's. */
  readonly announceLeaving: (() => void) | undefined;
  isDraining = false;

  constructor(init: {
    readonly agentID: string;
    readonly identifiers: AgentIdentifiers;
    readonly mux: LinkMux;
    readonly pulse: Pulse;
    /** The agent gives a dial up after this time, in milliseconds. Default 5 s. */
    readonly dialTimeoutMs?: number | undefined;
    readonly announceLeaving?: (() => void) | undefined;
    /** The rules' verdict. Absent: there are none, and the agent may get every dial. */
    readonly admission?:
      | { readonly identity: string; readonly anyHost: boolean; readonly hosts: ReadonlySet<string> }
      | undefined;
  }) {
    this.agentID = init.agentID;
    this.identity = init.admission?.identity;
    this.key = agentKey(init.agentID, this.identity);
    this.anyHost = init.admission?.anyHost ?? true;
    this.identifiers = init.identifiers;
    this.hosts = init.admission?.hosts ?? hostsOf(init.identifiers);
    this.mux = init.mux;
    this.pulse = init.pulse;
    this.announceLeaving = init.announceLeaving;
    this.answerMs = (init.dialTimeoutMs ?? DIAL_TIMEOUT_MS) + ANSWER_SLACK_MS;
  }

  get load(): number {
    return this.mux.connections + this.mux.pendingDials;
  }

  get isInDoubt(): boolean {
    return this.pulse.isInDoubt || this.health.isSilent;
  }
}

/** The key of an agent's streams. An agentID has no blank, so no two pairs have one key. */
export function agentKey(agentID: string, identity: string | undefined): string {
  return identity === undefined ? agentID : `${agentID} ${identity}`;
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
  readonly #byHost = new Map<string, ArrivalSet<Agent>>();
  /** Agents that have answered a dial, and streams that answer none though their link lives. The first of these is the next that gets a trial. */
  readonly #answering = new DrawableSet<Agent>();
  readonly #silent = new Set<Backend>();

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

  /** The number of streams of an agent, by its key. */
  streamsOf(key: string): number {
    return this.#agents.get(key)?.streams.size ?? 0;
  }

  add(backend: Backend): void {
    const agent = this.#agents.get(backend.key) ?? new Agent();
    this.#agents.set(backend.key, agent);
    agent.streams.add(backend);
    if (backend.anyHost) this.#all.add(agent);
    if (backend.anyHost && backend.identifiers.defaultRoute) this.#defaultRoutes.add(agent);
    for (const host of backend.hosts) this.#addHost(agent, host);
    this.#onChange();
  }

  /** Replaces the hosts of a stream. Of a host that is new to its agent the agent is the last. */
  setHosts(backend: Backend, hosts: ReadonlySet<string>): void {
    const agent = this.#agents.get(backend.key);
    const before = backend.hosts;
    backend.hosts = hosts;
    if (agent?.streams.has(backend) !== true) return;
    for (const host of before) if (!hosts.has(host)) this.#removeHost(agent, host);
    for (const host of hosts) if (!before.has(host)) this.#addHost(agent, host);
    this.#onChange();
  }

  #addHost(agent: Agent, host: string): void {
    if (!this.#usesHosts) return;
    const agents = this.#byHost.get(host) ?? new ArrivalSet();
    this.#byHost.set(host, agents);
    if (!agents.add(agent)) agent.repeat(host);
  }

  #removeHost(agent: Agent, host: string): void {
    if (!this.#usesHosts || agent.unrepeat(host)) return;
    const agents = this.#byHost.get(host);
    agents?.delete(agent);
    if (agents?.size === 0) this.#byHost.delete(host);
  }

  /**
   * To be called when a stream has lived for a while. An agent that opens a further stream has often lost those before it, which this side does not know
   * yet: those that are silent are probed, and are used again when they have answered.
   */
  probeEarlier(backend: Backend): void {
    const streams = this.#agents.get(backend.key)?.streams;
    if (streams?.has(backend) !== true) return;
    for (const stream of streams) {
      if (stream === backend) return;
      if (!stream.mux.isClosed) stream.pulse.probeIfSilent();
    }
  }

  /** Removes this stream; other streams of the agent stay. */
  remove(backend: Backend): void {
    const agent = this.#agents.get(backend.key);
    if (agent === undefined || !agent.streams.delete(backend)) return;
    this.#silent.delete(backend);
    const rest = [...agent.streams];
    if (!rest.some(({ identifiers }) => identifiers.defaultRoute)) this.#defaultRoutes.delete(agent);
    for (const host of backend.hosts) this.#removeHost(agent, host);
    if (rest.length === 0) {
      this.#agents.delete(backend.key);
      this.#all.delete(agent);
      this.#answering.delete(agent);
    }
    this.#onChange();
  }

  /** To be called for each dial that an agent has answered, by success or by error. */
  answered(backend: Backend): void {
    backend.health.answered();
    this.#silent.delete(backend);
    const agent = this.#agents.get(backend.key);
    if (agent?.streams.has(backend) === true) this.#answering.add(agent);
  }

  /** To be called for each dial whose answer is late. `mark` is that of the stream's health when the dial was sent. */
  overdue(backend: Backend, host: string, mark: number): void {
    backend.health.overdue(host, mark);
    const isHere = this.#agents.get(backend.key)?.streams.has(backend) === true;
    if (isHere && backend.health.isSilent) this.#silent.add(backend);
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

  /**
   * Chooses a backend for a destination that is not in `except`; `undefined` if there is none. Of a strategy's agents those of other identities than
   * those of `except` go first: one credential with many agents does not use up all attempts of a dial.
   */
  pick(address: string, except: readonly Backend[] = []): Backend | undefined {
    const host = destinationHost(address);
    const isTrial = this.#silent.size > 0 && except.length === 0 && this.#random() * TRIAL_DIALS < 1;
    const identities = except.flatMap(({ identity }) => identity ?? []);
    for (const strategy of this.#strategies) {
      const eligible = ({ backend }: Agent): Backend | undefined =>
        backend !== undefined && suits(backend, strategy, host) && !except.includes(backend) ? backend : undefined;
      const ofOthers = (agent: Agent): Backend | undefined => {
        const backend = eligible(agent);
        return backend?.identity !== undefined && identities.includes(backend.identity) ? undefined : backend;
      };
      const found =
        (isTrial ? this.#trial(strategy, host) : undefined) ??
        (identities.length > 0 ? this.#find(strategy, host, ofOthers) : undefined) ??
        this.#find(strategy, host, eligible);
      if (found !== undefined) return found;
    }
    return undefined;
  }

  #find(strategy: Strategy, host: string, eligible: (agent: Agent) => Backend | undefined): Backend | undefined {
    if (strategy === "destHost") return firstOf(this.#byHost.get(host) ?? [], eligible);
    return this.#draw(strategy === "default" ? this.#all : this.#defaultRoutes, eligible);
  }

  /**
   * Chooses a backend of another agent than those of `tried`, and with rules of another identity, to which a dial is sent too. One that has answered a
   * dial goes before those that have not, and of these the one that came first: many that come later and answer nothing do not get second tries.
   */
  pickSecond(address: string, tried: readonly Backend[]): Backend | undefined {
    const host = destinationHost(address);
    const owners = new Set(tried.map(ownerOf));
    const other = ({ backend }: Agent): Backend | undefined =>
      backend === undefined || owners.has(ownerOf(backend)) ? undefined : backend;
    // All strategies are asked for one that nothing speaks against, before any is used that drains, is in doubt or silent.
    return this.#secondOf(host, (agent) => freshOf(other(agent))) ?? this.#secondOf(host, other);
  }

  #secondOf(host: string, usable: (agent: Agent) => Backend | undefined): Backend | undefined {
    for (const strategy of this.#strategies) {
      const eligible = (agent: Agent): Backend | undefined => {
        const backend = usable(agent);
        return backend !== undefined && suits(backend, strategy, host) ? backend : undefined;
      };
      const answering = (agent: Agent): Backend | undefined =>
        this.#answering.has(agent) ? eligible(agent) : undefined;
      const hosts = this.#byHost.get(host) ?? [];
      const found =
        strategy === "destHost"
          ? (firstOf(hosts, answering) ?? firstOf(hosts, eligible))
          : (this.#drawTwo(this.#answering, eligible) ?? firstOf(this.#agents.values(), eligible));
      if (found !== undefined) return found;
    }
    return undefined;
  }

  /** The stream that answers no dials and had its last trial earliest. */
  #trial(strategy: Strategy, host: string): Backend | undefined {
    for (const backend of this.#silent) {
      const { isDraining, mux, pulse } = backend;
      if (isDraining || mux.isClosed || pulse.isInDoubt || !suits(backend, strategy, host)) continue;
      this.#silent.delete(backend);
      this.#silent.add(backend);
      return backend;
    }
    return undefined;
  }

  /** Draws two agents, or looks at all if chance gives none that may be used and has the lowest rank. */
  #draw(agents: DrawableSet<Agent>, eligible: (agent: Agent) => Backend | undefined): Backend | undefined {
    const drawn = this.#drawTwo(agents, (agent) => freshOf(eligible(agent)));
    if (drawn !== undefined) return drawn;
    return choose(
      [...agents].flatMap((agent) => eligible(agent) ?? []),
      this.#random,
    );
  }

  /** The less loaded one of two that are drawn; `undefined` if chance gives none. */
  #drawTwo(agents: DrawableSet<Agent>, fresh: (agent: Agent) => Backend | undefined): Backend | undefined {
    const [first, second] = [agents.draw(fresh, this.#random), agents.draw(fresh, this.#random)];
    if (first === undefined || second === undefined) return first ?? second;
    return second.load < first.load ? second : first;
  }

  #live(): Backend[] {
    return [...this.#agents.values()].flatMap(({ backend }) => backend ?? []);
  }
}

/** This identity answers for a stream. */
function ownerOf({ identity, agentID }: Backend): string {
  return identity ?? agentID;
}

/** The backend, if nothing speaks against it. */
function freshOf(backend: Backend | undefined): Backend | undefined {
  return backend !== undefined && rankOf(backend) === 0 ? backend : undefined;
}

/** The agent that had the host first, of those with the lowest rank: later comers do not take dials from an agent that serves. */
function firstOf(agents: Iterable<Agent>, eligible: (agent: Agent) => Backend | undefined): Backend | undefined {
  let best: Backend | undefined;
  for (const agent of agents) {
    const backend = eligible(agent);
    if (backend === undefined) continue;
    if (rankOf(backend) === 0) return backend;
    if (best === undefined || rankOf(backend) < rankOf(best)) best = backend;
  }
  return best;
}

/** Returns true if a strategy allows an agent for a destination. */
function suits({ identifiers, hosts, anyHost }: Backend, strategy: Strategy, host: string): boolean {
  if (strategy === "destHost") return hosts.has(host);
  return anyHost && (strategy === "default" || identifiers.defaultRoute);
}
