import { IpAddress, unmapped } from "#base/ip";
import { type AddressBook, admit, type Granted, type Registration } from "./admit.ts";
import type { Credential } from "./credential.ts";
import { matchRules, type RuleMatch } from "./match.ts";
import type { AgentRule } from "./rule.ts";

/** An agent is refused for one of these reasons; they are a label of a metric. */
export type AgentRefusalReason = "no-rule" | "agent-id" | "claim" | "limit" | "changed";

/** A refusal, for the agent and for logs. */
export interface AgentRefusal {
  readonly kind: "refused";
  readonly reason: AgentRefusalReason;
  readonly message: string;
  /** Absent: no rule matches. */
  readonly identity: string | undefined;
}

/** An admitted stream of an agent. */
export interface Admission {
  readonly kind: "admitted";
  readonly identity: string;
  /** True if it may get dials to hosts that it has not claimed. */
  readonly anyHost: boolean;
  /** The hosts that it has, of those that it claims, in canonical form. */
  readonly hosts: ReadonlySet<string>;
  /** Those that it claims and does not have now ({@link Granted}). */
  readonly withheld: ReadonlySet<string>;
  /** Sets who is told of changes. */
  observe(observer: AdmissionObserver): void;
  /** To be called when the stream has ended. Idempotent. */
  release(): void;
}

/** An admitted stream is told these. */
export interface AdmissionObserver {
  /** Changed rules do not admit the stream any more. Called once. */
  onRevoked(refusal: AgentRefusal): void;
  /** Addresses of Nodes have changed: the hosts that it has now. */
  onGranted(granted: Granted): void;
}

/** The owners of the addresses of Nodes, and what decides it. */
export interface NodeClaims extends AddressBook {
  /** An agent of the Node connects from the address, in canonical form. Returns true if this decided whose it is. */
  confirm(node: string, address: string): boolean;
}

/** Decides by rules which agents are admitted. */
export interface AgentGate {
  admit(credential: Credential, registration: Registration): Admission | AgentRefusal;
}

/** Caps for each identity. */
export interface IdentityLimits {
  /** agentIDs with a stream at once; 0: no limit. */
  readonly agents: number;
  /** Streams at once; 0: no limit. */
  readonly streams: number;
}

interface Held {
  readonly credential: Credential;
  readonly registration: Registration;
  readonly match: RuleMatch;
  /** The addresses that it claims, in the form of those of Nodes. */
  readonly claimed: readonly string[];
  granted: Granted;
  observer: AdmissionObserver | undefined;
}

/** The streams of one identity. */
interface IdentityUse {
  readonly agents: Map<string, number>;
  streams: number;
}

/**
 * The rules of `--agent-identity` and the streams that they admitted (docs/spec/tunnel.md#10.1). Holds an entry for each stream and each identity
 * that has one, and no others.
 */
export class RuleGate implements AgentGate {
  #rules: readonly AgentRule[];
  readonly #limits: IdentityLimits;
  readonly #nodes: NodeClaims | undefined;
  readonly #held = new Set<Held>();
  readonly #uses = new Map<string, IdentityUse>();

  /** `nodes`: for rules with `nodeAddresses`; without it nobody has such an address. */
  constructor(rules: readonly AgentRule[], limits: IdentityLimits, nodes?: NodeClaims) {
    this.#rules = rules;
    this.#limits = limits;
    this.#nodes = nodes;
  }

  admit(credential: Credential, registration: Registration): Admission | AgentRefusal {
    this.#confirm(credential, registration);
    const verdict = this.#judge(credential, registration);
    if (verdict.kind === "refused") return verdict;
    const { match, granted } = verdict;
    const { identity } = match;
    const full = this.#fullFor(identity, registration.agentID);
    if (full !== undefined) return { kind: "refused", reason: "limit", message: full, identity };
    const held: Held = { credential, registration, match, claimed: addressesIn(granted), granted, observer: undefined };
    this.#hold(held);
    return {
      kind: "admitted",
      identity,
      anyHost: match.rule.anyHost,
      hosts: granted.hosts,
      withheld: granted.withheld,
      observe: (observer) => {
        held.observer = observer;
      },
      release: () => this.#release(held),
    };
  }

  /** Replaces the rules. Streams that they do not admit in the same way end: their agents come again. */
  replace(rules: readonly AgentRule[]): void {
    this.#rules = rules;
    this.#judgeAgain([...this.#held]);
  }

  /**
   * To be called when these addresses may belong to others than before. The streams that claim none of them are not judged: a kubelet can change its own
   * Node many times a second.
   */
  addressesChanged(addresses: ReadonlySet<string>): void {
    this.#judgeAgain([...this.#held].filter(({ claimed }) => claimed.some((address) => addresses.has(address))));
  }

  #judgeAgain(streams: readonly Held[]): void {
    for (const held of streams) {
      const { credential, registration, match, observer } = held;
      const verdict = this.#judge(credential, registration);
      if (verdict.kind === "refused") observer?.onRevoked(verdict);
      else if (verdict.match.identity !== match.identity || verdict.match.rule.anyHost !== match.rule.anyHost) {
        const { identity } = verdict.match;
        observer?.onRevoked({
          ...{ kind: "refused", reason: "changed", message: "the rules have changed; connect again", identity },
        });
      } else {
        const before = held.granted;
        held.granted = verdict.granted;
        if (!isEqual(before.hosts, verdict.granted.hosts)) observer?.onGranted(verdict.granted);
      }
    }
  }

  /** The number of streams of each identity that has one. */
  get streams(): ReadonlyMap<string, number> {
    return new Map(Array.from(this.#uses, ([identity, { streams }]) => [identity, streams]));
  }

  /** An agent that connects from an address of its Node may decide whose that is. */
  #confirm(credential: Credential, { from }: Registration): void {
    const { rule, name } = matchRules(this.#rules, credential) ?? {};
    if (rule?.nodeAddresses !== true || name === undefined || from === undefined) return;
    const address = from.toString();
    if (this.#nodes?.confirm(name, address) === true) this.addressesChanged(new Set([address]));
  }

  #judge(
    credential: Credential,
    registration: Registration,
  ): { readonly kind: "matched"; readonly match: RuleMatch; readonly granted: Granted } | AgentRefusal {
    const match = matchRules(this.#rules, credential);
    if (match === undefined) {
      const message = "no rule of --agent-identity matches this agent's certificate or token";
      return { kind: "refused", reason: "no-rule", message, identity: undefined };
    }
    const granted = admit(match, registration, this.#nodes);
    if (granted.kind === "granted") return { kind: "matched", match, granted };
    return { kind: "refused", reason: granted.what, message: granted.message, identity: match.identity };
  }

  #fullFor(identity: string, agentID: string): string | undefined {
    const { agents, streams } = this.#limits;
    const use = this.#uses.get(identity);
    if (use === undefined) return undefined;
    if (streams > 0 && use.streams >= streams) return `${identity} has ${streams} streams already`;
    if (agents > 0 && use.agents.size >= agents && !use.agents.has(agentID)) {
      return `${identity} has ${agents} agents already`;
    }
    return undefined;
  }

  #hold(held: Held): void {
    const { match, registration } = held;
    const use = this.#uses.get(match.identity) ?? { agents: new Map<string, number>(), streams: 0 };
    this.#uses.set(match.identity, use);
    use.streams += 1;
    use.agents.set(registration.agentID, (use.agents.get(registration.agentID) ?? 0) + 1);
    this.#held.add(held);
  }

  #release(held: Held): void {
    if (!this.#held.delete(held)) return;
    const { identity } = held.match;
    const { agentID } = held.registration;
    const use = this.#uses.get(identity);
    if (use === undefined) return;
    use.streams -= 1;
    const rest = (use.agents.get(agentID) ?? 0) - 1;
    if (rest > 0) use.agents.set(agentID, rest);
    else use.agents.delete(agentID);
    if (use.streams === 0) this.#uses.delete(identity);
  }
}

function addressesIn({ hosts, withheld }: Granted): readonly string[] {
  return [...hosts, ...withheld].flatMap((host) => {
    const address = IpAddress.tryParse(host);
    return address === undefined ? [] : [unmapped(address).toString()];
  });
}

function isEqual(one: ReadonlySet<string>, other: ReadonlySet<string>): boolean {
  return one.size === other.size && [...one].every((element) => other.has(element));
}
