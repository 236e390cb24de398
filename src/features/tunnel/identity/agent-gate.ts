import { admit, type Registration } from "./admit.ts";
import type { Credential } from "./credential.ts";
import { matchRules, type RuleMatch } from "./match.ts";
import type { AgentRule } from "./rule.ts";

/** Why an agent is refused; a label of a metric. */
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
  /** Whether it may get dials to hosts that it has not claimed. */
  readonly anyHost: boolean;
  /** `end` is called once when changed rules do not admit the stream any more. */
  onRevoked(end: (refusal: AgentRefusal) => void): void;
  /** To be called when the stream has ended. Idempotent. */
  release(): void;
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
  revoke: (refusal: AgentRefusal) => void;
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
  readonly #held = new Set<Held>();
  readonly #uses = new Map<string, IdentityUse>();

  constructor(rules: readonly AgentRule[], limits: IdentityLimits) {
    this.#rules = rules;
    this.#limits = limits;
  }

  admit(credential: Credential, registration: Registration): Admission | AgentRefusal {
    const verdict = judge(this.#rules, credential, registration);
    if (verdict.kind === "refused") return verdict;
    const { match } = verdict;
    const { identity } = match;
    const full = this.#fullFor(identity, registration.agentID);
    if (full !== undefined) return { kind: "refused", reason: "limit", message: full, identity };
    const held: Held = { credential, registration, match, revoke: () => undefined };
    this.#hold(held);
    return {
      kind: "admitted",
      identity,
      anyHost: match.rule.anyHost,
      onRevoked: (end) => {
        held.revoke = end;
      },
      release: () => this.#release(held),
    };
  }

  /** Replaces the rules. Streams that they do not admit in the same way end: their agents come again. */
  replace(rules: readonly AgentRule[]): void {
    this.#rules = rules;
    for (const { credential, registration, match, revoke } of [...this.#held]) {
      const verdict = judge(rules, credential, registration);
      if (verdict.kind === "refused") revoke(verdict);
      else if (verdict.match.identity !== match.identity || verdict.match.rule.anyHost !== match.rule.anyHost) {
        const { identity } = verdict.match;
        revoke({ kind: "refused", reason: "changed", message: "the rules have changed; connect again", identity });
      }
    }
  }

  /** The number of streams of each identity that has one. */
  get streams(): ReadonlyMap<string, number> {
    return new Map(Array.from(this.#uses, ([identity, { streams }]) => [identity, streams]));
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

function judge(
  rules: readonly AgentRule[],
  credential: Credential,
  registration: Registration,
): { readonly kind: "matched"; readonly match: RuleMatch } | AgentRefusal {
  const match = matchRules(rules, credential);
  if (match === undefined) {
    const message = "no rule of --agent-identity matches this agent's certificate or token";
    return { kind: "refused", reason: "no-rule", message, identity: undefined };
  }
  const fault = admit(match, registration);
  if (fault === undefined) return { kind: "matched", match };
  return { kind: "refused", reason: fault.what, message: fault.message, identity: match.identity };
}
