/**
 * UDP flows that go to endpoints that are gone (docs/spec/service-proxy.md#2.11).
 *
 * Owns: which flows are stale. Refuses to know: when to look.
 */
export { probeConntrack } from "./probe.ts";
export { deleteStaleFlows, type IsHolder } from "./stale.ts";
