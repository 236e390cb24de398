import { ApiError } from "../errors.ts";

/** The requests that a rule matches. An absent member matches everything. */
export interface FaultMatch {
  /** `get`, `list`, `watch`, `create`, `update`, `patch`, `delete`, `deletecollection`. */
  readonly verb?: string | readonly string[];
  readonly group?: string;
  readonly resource?: string;
  readonly subresource?: string;
  readonly namespace?: string;
  readonly name?: string;
  /** A substring of the User-Agent header. */
  readonly userAgent?: string;
  /** Share of the matching requests to which the rule applies, 0 to 1. Default 1. */
  readonly probability?: number;
  /** The rule is removed after this many hits. Default: it stays. */
  readonly times?: number;
}

/** The effect on a request that is hit. `latencyMs` combines with the others. */
export interface FaultAction {
  /** The wait before any other effect, in milliseconds. */
  readonly latencyMs?: number;
  /** Answer with this HTTP status and a Status body and do not execute the request. */
  readonly status?: 409 | 410 | 429 | 500 | 502 | 503 | 504;
  /** Seconds in `Retry-After` of a 429 or 503. Default 1. */
  readonly retryAfterSeconds?: number;
  /**
   * `drop-connection`: close the connection before the request is executed. `lost-response`: execute and commit the request, then close the
   * connection.
   */
  readonly cut?: "drop-connection" | "lost-response";
}

/** One rule. */
export interface FaultRule {
  readonly match?: FaultMatch;
  readonly action: FaultAction;
}

/** The fields of a request that rules match. */
export interface FaultSubject {
  readonly verb: string;
  readonly group: string;
  readonly resource: string;
  readonly subresource: string;
  readonly namespace: string;
  readonly name: string;
  readonly userAgent: string;
}

/** Watches that match are ended: `drop` closes their connections, `expire` sends 410 first. Undefined matches all. */
export type WatchFault = (how: "drop" | "expire", match: FaultMatch | undefined) => number;

/** The maximum number of rules; it is needed because rules can come over HTTP. */
export const MAX_FAULT_RULES = 1000;

interface RuleState {
  readonly id: number;
  readonly rule: FaultRule;
  hits: number;
}

/** Faults to inject, deterministic for a seed. Rules are tried in order; the first rule that matches and whose chance hits is used. */
export class FaultPlan {
  readonly #rules = new Map<number, RuleState>();
  readonly #watchFault: WatchFault;
  #nextId = 1;
  #state: number;

  constructor(init: { readonly seed?: number; readonly watchFault: WatchFault }) {
    this.#state = (init.seed ?? 1) >>> 0;
    this.#watchFault = init.watchFault;
  }

  /** Adds a rule and returns its id. Throws ApiError if there are already {@link MAX_FAULT_RULES}. */
  add(rule: FaultRule): number {
    if (this.#rules.size >= MAX_FAULT_RULES) {
      throw new ApiError("TooManyRequests", `cannot add a fault rule: ${MAX_FAULT_RULES} are set; remove some first`);
    }
    const id = this.#nextId;
    this.#nextId += 1;
    this.#rules.set(id, { id, rule, hits: 0 });
    return id;
  }

  /** Removes a rule; false if it does not exist, or not any more. */
  remove(id: number): boolean {
    return this.#rules.delete(id);
  }

  /** Removes every rule. */
  clear(): void {
    this.#rules.clear();
  }

  /** The rules in order, each with the number of its hits. */
  list(): readonly { readonly id: number; readonly rule: FaultRule; readonly hits: number }[] {
    return Array.from(this.#rules.values(), (held) => ({ ...held }));
  }

  /** Cuts running watches; returns their number. */
  dropWatches(match?: FaultMatch): number {
    return this.#watchFault("drop", match);
  }

  /** Ends running watches with a 410 event; returns their number. */
  expireWatches(match?: FaultMatch): number {
    return this.#watchFault("expire", match);
  }

  /** The action for a request, if any. Counts the hit. */
  take(subject: FaultSubject): FaultAction | undefined {
    for (const held of this.#rules.values()) {
      const { match = {}, action } = held.rule;
      if (!matches(match, subject) || this.#random() >= (match.probability ?? 1)) continue;
      held.hits += 1;
      if (match.times !== undefined && held.hits >= match.times) this.#rules.delete(held.id);
      return action;
    }
    return undefined;
  }

  /** mulberry32: small, and the same on every machine. */
  #random(): number {
    this.#state = (this.#state + 0x6d2b79f5) >>> 0;
    let x = this.#state;
    x = Math.imul(x ^ (x >>> 15), x | 1);
    x ^= x + Math.imul(x ^ (x >>> 7), x | 61);
    return ((x ^ (x >>> 14)) >>> 0) / 2 ** 32;
  }
}

/** Returns true if a rule's conditions hold, without its chance. */
export function matches(match: FaultMatch, subject: FaultSubject): boolean {
  const verbs = match.verb === undefined ? undefined : typeof match.verb === "string" ? [match.verb] : match.verb;
  if (verbs !== undefined && !verbs.includes(subject.verb)) return false;
  for (const key of ["group", "resource", "subresource", "namespace", "name"] as const) {
    const wanted = match[key];
    if (wanted !== undefined && wanted !== subject[key]) return false;
  }
  return match.userAgent === undefined || subject.userAgent.includes(match.userAgent);
}
