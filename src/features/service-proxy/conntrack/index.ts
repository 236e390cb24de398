/**
 * Deletes UDP flows to removed endpoints, and those of removed front ends (docs/spec/service-proxy.md#2.11).
 *
 * Owns: which flows are stale. Does not know: when to delete them.
 */
export { probeConntrack } from "./probe.ts";
export {
  deleteStaleFlows,
  hasNone,
  type IsHolder,
  type KeepsFlows,
  type NodePortHost,
  type UdpFrontEnds,
  udpFrontEnds,
} from "./stale.ts";
export { UnreadyEndpoints } from "./unready.ts";
