import type { IpAddress, IpFamily } from "#base/ip";
import { hasError, type Snapshot, type Uplink } from "#base/uplink-model";
import type { DnsUplink } from "../dns/index.ts";
import { SelectError } from "./errors.ts";
import type { PenaltyState } from "./penalties.ts";

/** An uplink that may carry a request, with its usable sources. */
export interface Candidate {
  readonly uplink: Uplink;
  /** The usable sources, in the order of the uplink's addresses; at least one. */
  readonly sources: readonly IpAddress[];
}

/** Uplinks that are tried side by side: they have the same cost and the same penalty state. */
export interface Tier {
  readonly candidates: readonly Candidate[];
  /** The penalty of all of them has just ended: the next tier starts soon after this tier. */
  readonly isProbation: boolean;
}

/** The input of the order besides the uplinks. */
export interface OrderInput {
  readonly penaltyState: (uplink: string) => PenaltyState;
  /** Sorts uplinks of equal cost. */
  readonly rotate: (uplinks: readonly Candidate[]) => Candidate[];
  /** Names of uplinks that this request has tried already. */
  readonly except?: ReadonlySet<string> | undefined;
}

/**
 * The eligible uplinks for a request, in tiers (docs/spec/uplink-proxy.md#6.1): uplinks with an error or a penalty come last; both groups
 * are sorted by cost. Pure.
 */
export function orderCandidates(eligible: readonly Candidate[], { penaltyState, rotate, except }: OrderInput): Tier[] {
  const groups: { readonly rank: number; readonly isProbation: boolean; candidates: Candidate[] }[] = [];
  for (const candidate of eligible) {
    const { uplink } = candidate;
    if (except?.has(uplink.name) === true) continue;
    const state = penaltyState(uplink.name);
    const rank = rankOf(uplink, state);
    // The list is short and nearly always sorted.
    let at = groups.length;
    while (at > 0 && (groups[at - 1]?.rank ?? rank) > rank) at -= 1;
    const group = groups[at - 1];
    if (group?.rank === rank) group.candidates.push(candidate);
    else {
      const made = { rank, isProbation: state === "probation", candidates: [candidate] };
      if (at === groups.length) groups.push(made);
      else groups.splice(at, 0, made);
    }
  }
  for (const group of groups) if (group.candidates.length > 1) group.candidates = rotate(group.candidates);
  return groups;
}

/**
 * The uplinks a request may use: management, IP, valid, within the cost, with a usable source of one of the families. An uplink that costs
 * more than `maxCost` is never among them. Pure.
 */
export function eligibleCandidates(snapshot: Snapshot, families: readonly IpFamily[]): Candidate[] {
  return snapshot.uplinks.flatMap((uplink) => {
    const { isManagement, isL3, isValid, cost } = uplink;
    if (!isManagement || !isL3 || !isValid || cost > snapshot.maxCost) return [];
    const sources = usableSources(uplink, families);
    return sources.length === 0 ? [] : [{ uplink, sources }];
  });
}

/** Caches {@link eligibleCandidates} of the last snapshot, which many requests share. */
export class EligibleCandidates {
  readonly #found = new Map<"4" | "6" | "both", readonly Candidate[]>();
  #snapshot: Snapshot | undefined;

  of(snapshot: Snapshot, families: readonly IpFamily[]): readonly Candidate[] {
    if (snapshot !== this.#snapshot) this.#found.clear();
    this.#snapshot = snapshot;
    const key = !families.includes(6) ? "4" : families.includes(4) ? "both" : "6";
    const found = this.#found.get(key) ?? eligibleCandidates(snapshot, families);
    this.#found.set(key, found);
    return found;
  }
}

/** The reason why no uplink may be used: none exists, or all are above the maximum cost. */
export function noCandidates(snapshot: Snapshot, target: string, families: readonly IpFamily[] = [4, 6]): SelectError {
  const present = snapshot.uplinks.filter(({ isManagement, isL3 }) => isManagement && isL3);
  if (present.length > 0 && present.every(({ cost }) => cost > snapshot.maxCost)) {
    return new SelectError("cost-limit", `no uplink within max cost ${snapshot.maxCost} for ${target}`);
  }
  if (families.length < 2 && eligibleCandidates(snapshot, [4, 6]).length > 0) {
    return new SelectError("no-uplink", `no uplink has an IPv${families[0] ?? 4} address for ${target}`);
  }
  return new SelectError("no-uplink", `no management interfaces available for ${target}`);
}

function usableSources(uplink: Uplink, families: readonly IpFamily[]): IpAddress[] {
  const usable = uplink.addresses.filter(({ address, isUsable }) => isUsable && families.includes(address.family));
  return usable.map(({ address }) => address);
}

/**
 * Uplinks on probation form a tier before the other uplinks of their cost. Cost is 0 to 255; failed and penalised uplinks come after all
 * costs.
 */
function rankOf(uplink: Uplink, penaltyState: PenaltyState): number {
  const isInTail = penaltyState === "penalised" || hasError(uplink.status);
  return (isInTail ? 10_000 : 0) + uplink.cost * 2 + (penaltyState === "probation" ? 0 : 1);
}

/** A candidate as DNS needs it. */
export function dnsUplink({ uplink, sources }: Candidate): DnsUplink {
  return {
    name: uplink.name,
    servers: uplink.dnsServers.map((server) => server.toString()),
    searchDomains: uplink.searchDomains,
    sources,
  };
}
