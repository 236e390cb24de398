/** What is known of a router from its answers. `unproven`: it has never answered, so it is not judged. */
export type RouterVerdict = "unproven" | "alive" | "dead";

/**
 * A router that is probed, between two events; times in milliseconds of a monotonic clock. At `at` something is due: a probe, or the end of a wait.
 */
export type ProbeState =
  /** No answer yet. */
  | { readonly phase: "unproven"; readonly at: number }
  /** The last probe was answered; the next one is sent at `at`. */
  | { readonly phase: "alive"; readonly at: number }
  /** A probe is under way since `askedAt`. */
  | { readonly phase: "asked"; readonly askedAt: number; readonly at: number }
  /** A probe was not answered in time. `left` probes of the burst are not sent; with none left `at` is the end of the wait. */
  | { readonly phase: "doubted"; readonly askedAt: number; readonly left: number; readonly at: number }
  /** `answers`: those since the death, each within {@link FORGET_MS} of the one before. */
  | { readonly phase: "dead"; readonly answers: number; readonly answeredAt: number; readonly at: number };

/** The pause between two probes of a router, milliseconds. */
export const PROBE_MS = 1000;
/** An answer that takes longer is a miss, milliseconds. It still counts when it arrives. */
export const MISS_MS = 200;
/** The probes after a miss. With 30 % loss each way 0.51 of all probes have no answer; none of twenty has one once in 700,000 bursts. */
export const BURST = 20;
/** The pause between two probes of a burst, milliseconds. From a fault to the verdict it takes at most 1000 + 200 + 19 * 20 + 200 = 1780 ms. */
export const BURST_MS = 20;
/** A dead router is alive again with so many answers. */
export const RETURN_ANSWERS = 3;
/** An answer of a dead router counts together with the next one for this time, milliseconds. */
const FORGET_MS = 5000;
/** This process was late by so much, milliseconds: answers may wait unread, or the machine was stopped. What was not measured is no evidence. */
const LATE_MS = 500;

/** Pure: the state of a router that is new here. `now`: the time of its first probe. */
export function newProbeState(now: number): ProbeState {
  return { phase: "unproven", at: now };
}

/** Pure: the verdict of a state. A router in doubt is alive. */
export function verdictOf({ phase }: ProbeState): RouterVerdict {
  return phase === "unproven" || phase === "dead" ? phase : "alive";
}

/** Pure: the state at `now`, and whether a probe must be sent. Before `state.at` nothing changes. */
export function afterTime(state: ProbeState, now: number): { readonly state: ProbeState; readonly probe: boolean } {
  if (now < state.at) return { state, probe: false };
  const isLate = now >= state.at + LATE_MS;
  switch (state.phase) {
    case "unproven":
      return { state: { ...state, at: now + PROBE_MS }, probe: true };
    case "alive":
      return { state: { phase: "asked", askedAt: now, at: now + MISS_MS }, probe: true };
    case "asked":
      if (isLate) return { state: { ...state, askedAt: now, at: now + MISS_MS }, probe: true };
      return { state: nextOfBurst(state.askedAt, BURST, now), probe: true };
    case "doubted":
      if (isLate) return { state: nextOfBurst(now, BURST, now), probe: true };
      if (state.left > 0) return { state: nextOfBurst(state.askedAt, state.left, now), probe: true };
      return { state: { phase: "dead", answers: 0, answeredAt: now, at: state.askedAt + 2 * PROBE_MS }, probe: false };
    case "dead":
      return { state: { ...state, at: now + PROBE_MS }, probe: true };
  }
}

function nextOfBurst(askedAt: number, left: number, now: number): ProbeState {
  return { phase: "doubted", askedAt, left: left - 1, at: now + (left > 1 ? BURST_MS : MISS_MS) };
}

/** Pure: the state after an answer of the router arrived. */
export function afterAnswer(state: ProbeState, now: number): ProbeState {
  switch (state.phase) {
    case "unproven":
    case "alive":
      return { phase: "alive", at: state.at };
    case "asked":
    case "doubted":
      // A burst that an answer ended does not bring the next probe forward.
      return { phase: "alive", at: Math.max(now, state.askedAt + PROBE_MS) };
    case "dead": {
      const answers = now - state.answeredAt > FORGET_MS ? 1 : state.answers + 1;
      if (answers >= RETURN_ANSWERS) return { phase: "alive", at: state.at };
      return { ...state, answers, answeredAt: now };
    }
  }
}
