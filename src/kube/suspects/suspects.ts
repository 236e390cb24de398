/** The object of a pass: a controller's key, as in its queue. */
export interface PassKey {
  readonly controller: string;
  /** `namespace/name`, or what else the controller's queue has. */
  readonly key: string;
}

/** A pass that was under way. */
export interface Pass extends PassKey {
  /** The object's version at the beginning of the pass; empty if the key names no object. */
  readonly version: string;
  /** It began at this time, in milliseconds since the epoch. */
  readonly atMs: number;
}

/** An object that is not reconciled for a time. */
export interface Aside {
  /** The version that ended the process last. Another one is tried at once while {@link Aside.changes} is below {@link MAX_CHANGES}. */
  readonly version: string;
  /** Milliseconds since the epoch. */
  readonly untilMs: number;
  /** It was set aside so often; the time is doubled each time. */
  readonly times: number;
  /** So many changed versions ended the process as well. */
  readonly changes: number;
  /** The error that a step threw; absent: the process ended. */
  readonly fault?: string;
}

/** An object whose pass was under way when the process ended. */
export interface Suspect extends PassKey {
  /** The passes at whose time the process ended, within {@link WINDOW_MS}, in order. */
  readonly ends: readonly { readonly atMs: number; readonly version: string }[];
  readonly aside?: Aside;
}

/** Ends of the process count for this time, milliseconds. */
export const WINDOW_MS = 600_000;
/** So many ends within {@link WINDOW_MS} set an object aside. */
export const MAX_ENDS = 3;
/** The first time that an object is set aside for, and the longest one, milliseconds. */
export const FIRST_ASIDE_MS = 60_000;
export const LONGEST_ASIDE_MS = 3_600_000;
/** When so many changed versions of an object have ended the process too, only time ends its being aside: else who writes the object ends the process whenever he likes. */
export const MAX_CHANGES = 2;
/** The maximum number of suspects. Beyond it those that are oldest are forgotten. */
export const MAX_SUSPECTS = 256;

const isSame = (one: PassKey, other: PassKey): boolean => one.controller === other.controller && one.key === other.key;

export function suspectOf(suspects: readonly Suspect[], pass: PassKey): Suspect | undefined {
  return suspects.find((one) => isSame(one, pass));
}

/**
 * Pure: the suspects after an end of the process while `underWay` were under way. Known suspects are reconciled one at a time, so where one of them was under way it
 * alone is the cause; else each of them may be.
 */
export function afterEnd(suspects: readonly Suspect[], underWay: readonly Pass[], nowMs: number): readonly Suspect[] {
  const known = underWay.filter((pass) => suspectOf(suspects, pass) !== undefined);
  const blamed = known.length > 0 ? known : underWay;
  const others = suspects.filter((one) => !blamed.some((pass) => isSame(one, pass)));
  const after = blamed.map((pass) => blame(suspectOf(suspects, pass), pass, nowMs));
  return [...others.filter((one) => isRemembered(one, nowMs)), ...after].slice(-MAX_SUSPECTS);
}

/** Pure: the suspects after a step has thrown an error that is a fault of the program. Its object is known, so it is set aside at once. */
export function afterFault(suspects: readonly Suspect[], pass: Pass, fault: string): readonly Suspect[] {
  const others = suspects.filter((one) => !isSame(one, pass) && isRemembered(one, pass.atMs));
  const after = blame(suspectOf(suspects, pass), pass, pass.atMs, 1);
  const { aside } = after;
  return [...others, aside === undefined ? after : { ...after, aside: { ...aside, fault } }].slice(-MAX_SUSPECTS);
}

function blame(
  before: Suspect | undefined,
  { controller, key, version, atMs }: Pass,
  nowMs: number,
  maxEnds = MAX_ENDS,
): Suspect {
  // A clock that was set back since must not keep an end for longer.
  const end = { atMs: Math.min(atMs, nowMs), version };
  const recent = (before?.ends ?? []).filter((one) => one.atMs <= nowMs && one.atMs > nowMs - WINDOW_MS);
  const ends = [...recent, end].slice(-MAX_ENDS);
  const { aside } = before ?? {};
  if (aside === undefined && ends.length < maxEnds) return { controller, key, ends };
  const times = aside?.times ?? 0;
  const forMs = Math.min(FIRST_ASIDE_MS * 2 ** times, LONGEST_ASIDE_MS);
  const changes = (aside?.changes ?? 0) + Number(aside !== undefined && aside.version !== version);
  return { controller, key, ends, aside: { version, untilMs: nowMs + forMs, times: times + 1, changes } };
}

/** A suspect is forgotten when a pass of it ends well; one that has no pass any more, as its object is gone, by time. */
function isRemembered({ ends, aside }: Suspect, nowMs: number): boolean {
  if (aside !== undefined) return nowMs < aside.untilMs + LONGEST_ASIDE_MS;
  return ends.some(({ atMs }) => atMs > nowMs - WINDOW_MS);
}

/** Pure: how long a version of an object must not be reconciled, in milliseconds, at most {@link LONGEST_ASIDE_MS}; 0: it may be. */
export function asideFor({ aside }: Suspect, version: string, nowMs: number): number {
  if (aside === undefined) return 0;
  if (version !== aside.version && aside.changes < MAX_CHANGES) return 0;
  return Math.min(Math.max(aside.untilMs - nowMs, 0), LONGEST_ASIDE_MS);
}

/** Pure: a sentence for operators. */
export function describeAside({ changes, untilMs, fault }: Aside): string {
  const until = `until ${new Date(untilMs).toISOString()}`;
  const ended = `${MAX_ENDS} times within ten minutes, or again after that, the process ended while this object was reconciled`;
  const why = fault === undefined ? ended : `a fault of the program was met in this object (${fault})`;
  if (changes >= MAX_CHANGES) return `${why}, changed versions of it too: it is not reconciled ${until}`;
  return `${why}: it is not reconciled until it changes, at the latest ${until}`;
}
