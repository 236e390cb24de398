/**
 * Whether routers live, as their clients see it: probes, their judgement, and the router that a client uses while another one is dead (docs/spec/pod-network.md#7.8).
 *
 * Owns: the bytes of a probe, the time at which the next one is due, the verdict, the choice. Does not know: sockets, clocks and the API; it is given times and answers.
 */
export { chooseRouter, type ServingRouter } from "./choose.ts";
export {
  afterAnswer,
  afterTime,
  BURST,
  BURST_MS,
  MISS_MS,
  newProbeState,
  PROBE_MS,
  type ProbeState,
  RETURN_ANSWERS,
  type RouterVerdict,
  verdictOf,
} from "./judge.ts";
export { answerTo, decodeProbe, encodeProbe, newProbeToken, type ProbeMessage, probePort } from "./message.ts";
export { type ProbeEnds, wrapProbe } from "./packet.ts";
