/**
 * The verdict on a router by its answers. `unproven`: it has never answered, so it is not judged. `returning`: it answers after a death, but not yet for long
 * enough.
 */
export type RouterVerdict = "unproven" | "alive" | "returning" | "dead";

/** The clients of one namespace, as they find a router. */
export interface Witness {
  readonly namespace: string;
  readonly finds: RouterVerdict;
  /** The number of probes that an `unproven` one has had; others have none. */
  readonly silent: number;
  /** When it began to find `alive` or `returning`, milliseconds. */
  readonly since: number;
  /** For how long the router must answer it to be alive again, milliseconds; 0 before the first death. */
  readonly holdMs: number;
  /** The time since which the router's kernel says that its process is away, in milliseconds; only with `alive`. Absent: the last answer was the process's. */
  readonly awaySince?: number | undefined;
}

/** Returns true if a witness has had answers since the last death. */
export const isLive = ({ finds }: Witness): boolean => finds === "alive" || finds === "returning";

/**
 * Pure: the witnesses that are asked each second, in the order of their turns: those that have answers. Where two find the router dead they outvote the third, and its
 * return is what counts; where nobody has answers all are asked.
 */
export function mainOf(witnesses: readonly Witness[]): readonly Witness[] {
  const dead = witnesses.filter(({ finds }) => finds === "dead");
  if (dead.length > 1) return dead;
  const live = witnesses.filter(isLive);
  return live.length > 0 ? live : witnesses;
}

/** Pure: the other witnesses. */
export function minorOf(witnesses: readonly Witness[]): readonly Witness[] {
  const main = new Set(mainOf(witnesses));
  return witnesses.filter((one) => !main.has(one));
}

/** The verdicts stand from the best to the worst. */
const RANKS = ["alive", "returning", "dead"] as const;

/**
 * Pure: the verdict for the clients of a namespace. Of three witnesses two decide, also for the third. Of two each one decides for its own namespace, since one of them may
 * drop or forge what the other finds; others are led by the better finding, and by a single witness not at all: it harms nobody but itself.
 * `namespace` absent: what most clients have; a single witness decides it.
 */
export function verdictFor(witnesses: readonly Witness[], namespace?: string): RouterVerdict {
  const proven = witnesses.filter(({ finds }) => finds !== "unproven");
  const votes = proven.map(({ finds }) => finds).toSorted((a, b) => rank(a) - rank(b));
  const own = proven.find((one) => one.namespace === namespace);
  const [best = "unproven", second, third] = votes;
  if (second !== undefined && third !== undefined) return second;
  if (own !== undefined) return own.finds;
  return second !== undefined || namespace === undefined ? best : "unproven";
}

const rank = (finds: RouterVerdict): number => (finds === "unproven" ? RANKS.length : RANKS.indexOf(finds));
