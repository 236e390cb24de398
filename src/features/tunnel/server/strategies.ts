import { ConfigError } from "#base/config";
import { parseHostPort } from "#wire/http-connect";
import { canonicalHost } from "../identity/hosts.ts";

/** The way in which a backend is chosen (docs/spec/tunnel.md#7.1). Each strategy defines a set of candidates. */
export const STRATEGIES = ["default", "destHost", "defaultRoute"] as const;
export type Strategy = (typeof STRATEGIES)[number];

/** Reads `--proxy-strategies`. Throws `ConfigError` for an empty list or an unknown name. */
export function parseStrategies(text: string): readonly Strategy[] {
  const names = text.split(",").map((name) => name.trim());
  const strategies = names.map((name) => {
    const strategy = STRATEGIES.find((known) => known === name);
    if (strategy !== undefined) return strategy;
    throw new ConfigError("invalid-value", [`"${name}" is not a proxy strategy: use ${STRATEGIES.join(", ")}`]);
  });
  return strategies;
}

/** The properties of an agent by which one of several is chosen. */
export interface Candidate {
  /** Number of established and pending connections. */
  readonly load: number;
  readonly isDraining: boolean;
  /** A PING waits for an answer: the agent may be gone. */
  readonly isInDoubt: boolean;
}

/** The order of candidates: one of a higher rank is used only if there is none of a lower one. 0: no reason against it. */
export function rankOf({ isDraining, isInDoubt }: Pick<Candidate, "isDraining" | "isInDoubt">): 0 | 1 | 2 {
  if (isInDoubt) return 2;
  return isDraining ? 1 : 0;
}

/** The host of a dialled address in canonical form; the whole text if it is not `host:port`. */
export function destinationHost(address: string): string {
  return canonicalHost(parseHostPort(address)?.host ?? address);
}

/**
 * Draws two candidates of the lowest rank at random and returns the less loaded one, so that bursts are spread. `random` returns [0, 1).
 */
export function choose<C extends Candidate>(from: readonly C[], random: () => number): C | undefined {
  const lowest = from.reduce((rank, candidate) => Math.min(rank, rankOf(candidate)), Number.POSITIVE_INFINITY);
  const pool = from.filter((candidate) => rankOf(candidate) === lowest);
  const draw = (): C | undefined => pool[Math.floor(random() * pool.length)];
  const [first, second] = [draw(), draw()];
  if (first === undefined || second === undefined) return first ?? second;
  return second.load < first.load ? second : first;
}
