import { isLive, mainOf, minorOf, type Witness } from "./witness.ts";

/**
 * A router that is probed, between two events; times in milliseconds of a monotonic clock. Its clients speak for their namespaces: up to three of these are its
 * witnesses, and each finds something of its own.
 */
export type ProbeState = Common &
  (
    | { readonly phase: "rest" }
    /** A probe of the witness `asked` is under way since `askedAt`. */
    | { readonly phase: "asked"; readonly askedAt: number; readonly asked: string }
    /** A probe was not answered in time. `open`: the witnesses without an answer since then, with their probes of the burst. `answers`: the others. */
    | {
        readonly phase: "doubted";
        readonly askedAt: number;
        readonly open: ReadonlyMap<string, number>;
        readonly answers: number;
      }
  );

interface Common {
  /** When the next probe of the main witnesses is due, or the end of a wait. */
  readonly at: number;
  /** When the next probe of another witness is due. */
  readonly minorAt: number;
  /** The namespaces that have clients here, in the order of their coming. */
  readonly namespaces: readonly string[];
  /** The namespaces that are asked, in the order of their turns. */
  readonly witnesses: readonly Witness[];
  /** For how long a router must answer after its first death, milliseconds. */
  readonly holdMs: number;
}

/** The step at a time: the next state, and the namespace whose clients must send a probe, if any. */
export interface ProbeStep {
  readonly state: ProbeState;
  readonly asks: string | undefined;
}

/** The pause between two probes of a router, milliseconds. */
export const PROBE_MS = 1000;
/** An answer that takes longer is a miss, milliseconds. It still counts when it arrives. */
export const MISS_MS = 200;
/**
 * The probes after a miss, of witnesses that have no answer. With 30 % loss each way 0.51 of all probes have no answer; none of twenty has one once in 700,000 bursts.
 */
export const BURST = 20;
/** The pause between two probes of a burst, milliseconds. From a fault to the verdict it takes at most 1000 + 200 + 19 * 20 + 200 = 1780 ms. */
export const BURST_MS = 20;
/** Two of three outvote one. */
const WITNESSES = 3;
/** For how long a router must answer after its first death, milliseconds. */
export const HOLD_MS = 10_000;
/** The time doubles with each death within this time after a return, milliseconds. */
export const CALM_MS = 600_000;
/** The longest that a router must answer, milliseconds. */
export const MAX_HOLD_MS = 160_000;
/**
 * For how long a router counts as alive whose kernel says that its process is away, milliseconds. What the process has made forwards on. A container that ends is started again at once, the
 * second time within ten minutes after 10 s, the third after 20 s.
 */
export const AWAY_MS = 60_000;
/** The pause between two probes of the witnesses that are not the main ones, milliseconds. */
const MINOR_MS = 5000;
/** After so many probes without any answer a witness gives way to a namespace that is none. Until then its probes are {@link MISS_MS} apart where another one has answers. */
const TRIES = 3;
/** So many witnesses with an answer end a doubt: a single one may have forged it. */
const ENOUGH = 2;
/** This process was late by so much, milliseconds: answers may wait unread, or the machine was stopped. What was not measured is no evidence. */
const LATE_MS = 500;

/** Pure: the state of a router that is new here. `now`: the time of its first probe. `namespaces`: those of its clients on this node. */
export function newProbeState(
  now: number,
  namespaces: readonly string[],
  { holdMs = HOLD_MS }: { readonly holdMs?: number | undefined } = {},
): ProbeState {
  return withNamespaces({ phase: "rest", at: now, minorAt: now, namespaces: [], witnesses: [], holdMs }, namespaces);
}

/** Pure: the state with these namespaces. A witness whose namespace is among them stays, with what it finds. */
export function withNamespaces(state: ProbeState, namespaces: readonly string[]): ProbeState {
  const gone = state.witnesses.filter((one) => !namespaces.includes(one.namespace));
  const kept = state.witnesses.filter((one) => !gone.includes(one));
  const free = namespaces.filter((one) => kept.every(({ namespace }) => namespace !== one));
  const witnesses = [...kept, ...free.slice(0, WITNESSES - kept.length).map((one) => newWitness(one))];
  const next: ProbeState = { ...state, namespaces, witnesses };
  return gone.reduce((before: ProbeState, { namespace }) => withoutQuestion(before, namespace), next);
}

const newWitness = (namespace: string, silent = 0): Witness => {
  return { namespace, finds: "unproven", silent, since: 0, holdMs: 0 };
};

/** Pure: the time at which {@link afterTime} has something to do. */
export function dueAt({ at, minorAt, witnesses }: ProbeState): number {
  return minorOf(witnesses).length === 0 ? at : Math.min(at, minorAt);
}

/** Pure: what happens at `now`. Before {@link dueAt} nothing changes. */
export function afterTime(state: ProbeState, now: number): ProbeStep {
  if (now < dueAt(state)) return { state, asks: undefined };
  if (now < state.at) return askMinor(state, now);
  const isLate = now >= state.at + LATE_MS;
  switch (state.phase) {
    case "rest":
      return askMain({ ...state, witnesses: state.witnesses.map((one) => afterHold(one, now)) }, now);
    case "asked":
      if (isLate) return { state: { ...state, askedAt: now, at: now + MISS_MS }, asks: state.asked };
      return askOpen({ ...state, phase: "doubted", open: opened(state), answers: 0 }, now);
    case "doubted":
      if (isLate) return askOpen({ ...state, askedAt: now, open: opened(state), answers: 0 }, now);
      if (sum(state.open) < BURST) return askOpen(state, now);
      return { state: condemned(state, now), asks: undefined };
  }
}

const opened = ({ witnesses }: ProbeState): ReadonlyMap<string, number> =>
  new Map(mainOf(witnesses).map(({ namespace }) => [namespace, 0]));

const sum = (counts: ReadonlyMap<string, number>): number => [...counts.values()].reduce((all, one) => all + one, 0);

const afterHold = (one: Witness, now: number): Witness =>
  one.finds === "returning" && now - one.since >= one.holdMs ? { ...one, finds: "alive", since: now } : one;

/** A probe of the main witnesses. Only one that has answers is judged by the next. */
function askMain(state: ProbeState, now: number): ProbeStep {
  const { state: next, witness } = takeTurn(state, mainOf(state.witnesses));
  if (witness === undefined) return { state: { ...next, at: now + PROBE_MS }, asks: undefined };
  const { namespace: asks } = witness;
  if (!isLive(witness)) return { state: { ...next, at: now + PROBE_MS }, asks };
  return { state: { ...next, phase: "asked", askedAt: now, asked: asks, at: now + MISS_MS }, asks };
}

function askMinor(state: ProbeState, now: number): ProbeStep {
  const { state: next, witness } = takeTurn(state, minorOf(state.witnesses));
  const isNew = minorOf(next.witnesses).some(({ finds, silent }) => finds === "unproven" && silent < TRIES);
  return { state: { ...next, minorAt: now + (isNew ? MISS_MS : MINOR_MS) }, asks: witness?.namespace };
}

/** The first of these witnesses is the last of all now. One that has never had an answer may give way to another namespace, whose turn it is then. */
function takeTurn(state: ProbeState, [first]: readonly Witness[]) {
  if (first === undefined) return { state, witness: undefined };
  const witness = first.finds === "unproven" ? afterTry(state, first) : first;
  return { state: { ...state, witnesses: [...state.witnesses.filter((one) => one !== first), witness] }, witness };
}

function afterTry({ namespaces, witnesses }: ProbeState, witness: Witness): Witness {
  const at = namespaces.indexOf(witness.namespace);
  const next = [...namespaces.slice(at + 1), ...namespaces.slice(0, at)].find((name) =>
    witnesses.every(({ namespace }) => namespace !== name),
  );
  if (witness.silent < TRIES || next === undefined) return { ...witness, silent: witness.silent + 1 };
  return newWitness(next, TRIES);
}

function askOpen(state: Extract<ProbeState, { phase: "doubted" }>, now: number): ProbeStep {
  const [least] = [...state.open].toSorted(([, a], [, b]) => a - b);
  if (least === undefined) return { state: atRest(state, now), asks: undefined };
  const [asks, sent] = least;
  const open = new Map(state.open).set(asks, sent + 1);
  return { state: { ...state, open, at: now + (sum(open) < BURST ? BURST_MS : MISS_MS) }, asks };
}

/** Witnesses without an answer at the end of the burst find the router dead. */
function condemned(state: Extract<ProbeState, { phase: "doubted" }>, now: number): ProbeState {
  const witnesses = state.witnesses.map((one): Witness => {
    if (!state.open.has(one.namespace)) return one;
    return { ...one, finds: "dead", holdMs: holdAfter(one, state, now), awaySince: undefined };
  });
  return { ...atRest(state, state.askedAt + 2 * PROBE_MS), witnesses };
}

function holdAfter({ finds, since, holdMs }: Witness, state: ProbeState, now: number): number {
  if (finds === "returning") return holdMs;
  return holdMs > 0 && now - since < CALM_MS ? Math.min(2 * holdMs, MAX_HOLD_MS) : state.holdMs;
}

function atRest({ minorAt, namespaces, witnesses, holdMs }: ProbeState, at: number): ProbeState {
  return { phase: "rest", at, minorAt, namespaces, witnesses, holdMs };
}

/** Pure: the state after an answer to a probe of this namespace arrived. */
export function afterAnswer(before: ProbeState, namespace: string, now: number): ProbeState {
  const witnesses = before.witnesses.map((one) => (one.namespace === namespace ? withAnswer(one, now) : one));
  return answered({ ...before, witnesses }, namespace, now);
}

/**
 * Pure: the state after the router's kernel refused a probe of this namespace, since nobody listens at the port of probes: tunnels and connection tracking live, the process does not. To a
 * witness that finds the router alive it is an answer, for {@link AWAY_MS} after the first one in a row. To others it says nothing: Coil's routers have no such port.
 */
export function afterRefusal(before: ProbeState, namespace: string, now: number): ProbeState {
  const witness = before.witnesses.find((one) => one.namespace === namespace);
  if (witness?.finds !== "alive") return before;
  const { awaySince = now } = witness;
  if (now - awaySince >= AWAY_MS) return before;
  const witnesses = before.witnesses.map((one) => (one === witness ? { ...one, awaySince } : one));
  return answered({ ...before, witnesses }, namespace, now);
}

function answered(state: ProbeState, namespace: string, now: number): ProbeState {
  if (state.phase === "rest") return state;
  // A doubt that answers ended does not bring the next probe forward.
  const nextAt = Math.max(now, state.askedAt + PROBE_MS);
  if (state.phase === "asked") return state.asked === namespace ? atRest(state, nextAt) : state;
  if (!state.open.has(namespace)) return state;
  const open = new Map(state.open);
  open.delete(namespace);
  const answers = state.answers + 1;
  if (answers >= ENOUGH || open.size === 0) return atRest(state, nextAt);
  return { ...state, open, answers, at: Math.min(state.at, now + BURST_MS) };
}

function withAnswer(one: Witness, now: number): Witness {
  if (one.finds === "unproven") return { ...one, finds: "alive", silent: 0, since: now };
  if (one.finds === "dead") return { ...one, finds: "returning", since: now };
  return one.awaySince === undefined ? one : { ...one, awaySince: undefined };
}

/** Pure: the state when no client of this namespace could send the probe that was due: it is no witness of anything. */
export function afterUnsent(state: ProbeState, namespace: string, now: number): ProbeState {
  const witnesses = state.witnesses.map((one) => (one.namespace === namespace ? newWitness(namespace, TRIES) : one));
  return withoutQuestion({ ...state, witnesses }, namespace, now);
}

/** Without the question to one witness, the others are asked at once. */
function withoutQuestion(state: ProbeState, namespace: string, now = state.at): ProbeState {
  const at = state.witnesses.some(isLive) ? now : state.at;
  if (state.phase === "asked" && state.asked === namespace) return atRest(state, at);
  if (state.phase !== "doubted" || !state.open.has(namespace)) return state;
  const open = new Map(state.open);
  open.delete(namespace);
  return open.size === 0 ? atRest(state, at) : { ...state, open };
}
