import type { EgressRef } from "../access/index.ts";
import type { ClientRouter } from "../client/index.ts";
import { AWAY_MS, isAway, type ProbeState, verdictFor } from "../probe/index.ts";

/** Health and the log name at most this many routers or namespaces. */
const MAX_NAMED = 5;
/** In place of namespaces: all of them. */
export const ALL = "all";

/** A router of an Egress that clients of this node use. */
export interface Pair {
  readonly egress: EgressRef;
  readonly key: string;
  readonly router: ClientRouter;
  state: ProbeState;
  /** The time since which its pod is not ready, in milliseconds of the monotonic clock. `undefined`: it is ready. */
  unreadySince: number | undefined;
  /** The token of each namespace's probes, which pods of other namespaces do not see. */
  readonly tokens: Map<string, string>;
  /** Namespaces whose last probe has no answer. */
  readonly unanswered: Set<string>;
}

/** Key of a router of an Egress, or of a client of it. */
export const pairKey = (egress: string, uid: string): string => `${egress} ${uid}`;

/** Returns true if the kernel of the router answers in place of its process. */
export const isProcessAway = ({ witnesses }: ProbeState): boolean =>
  witnesses.some((one) => one.awaySince !== undefined);

/** Returns the namespaces whose clients leave the router: {@link ALL}, or those of some namespaces. */
export function leavers({ witnesses, namespaces }: ProbeState): readonly string[] {
  const away = witnesses.map(({ namespace }) => namespace).filter((one) => isAway(verdictFor(witnesses, one)));
  // No namespace has this name.
  const isAll = isAway(verdictFor(witnesses, "")) || (away.length > 0 && away.length === namespaces.length);
  return isAll ? [ALL] : away.toSorted();
}

/** Returns true if the router returns to any clients. */
export const returns = ({ witnesses }: ProbeState): boolean =>
  witnesses.some(({ namespace }) => verdictFor(witnesses, namespace) === "returning");

/** Returns true if a router is probed on: it is ready, or has not been so for less than the time in which its kernel may answer in place of its process. */
export function isKept({ unreadySince }: Pair, now: number): boolean {
  return unreadySince === undefined || now - unreadySince < AWAY_MS;
}

/** The first names of a list, and the count of the others. */
export function someOf(names: readonly string[]): string {
  const more = names.length > MAX_NAMED ? [`${names.length - MAX_NAMED} more`] : [];
  return [...names.slice(0, MAX_NAMED), ...more].join(", ");
}

/** The dead routers in words, for health; `undefined` if none is dead. */
export function deadText(pairs: Iterable<Pair>): string | undefined {
  const dead = [...pairs].flatMap(({ key, router, state }) => {
    const whose = leavers(state);
    if (whose.length === 0) return [];
    const of = whose[0] === ALL ? "" : ` for pods of ${someOf(whose)}`;
    return [`${router.metadata.name} of Egress ${key}${of}`];
  });
  if (dead.length === 0) return undefined;
  return `routers that answer no probes: ${someOf(dead)}; pods of this node use other routers of the Egress, if any lives`;
}
