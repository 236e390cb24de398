/**
 * The liveness of routers as their clients see it: probes, their judgement, and the router that a client uses while another one is dead (docs/spec/pod-network.md#7.8).
 *
 * Owns: the bytes of a probe, the time at which the next one is due, the verdict, the choice. Does not know: sockets, clocks and the API; it is given times and answers.
 */
export { chooseRouter, isAway } from "./choose.ts";
export {
  AWAY_MS,
  afterAnswer,
  afterRefusal,
  afterTime,
  afterUnsent,
  dueAt,
  newProbeState,
  type ProbeState,
  withNamespaces,
} from "./judge.ts";
export { answerTo, decodeProbe, encodeProbe, newProbeToken, probePort } from "./message.ts";
export { wrapProbe } from "./packet.ts";
export { type RouterVerdict, verdictFor } from "./witness.ts";
