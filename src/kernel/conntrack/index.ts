/**
 * Connection tracking of one namespace: lists and deletes connections, so that a changed Service or egress takes effect for
 * UDP flows that never end.
 *
 * Owns: {@link ConntrackPort}, its ctnetlink encoding, a fake. Does not know: why a connection is stale.
 *
 * ```ts
 * using conntrack = openConntrack(netns);
 * conntrack.delete({ family: 4, protocol: 17, original: { dst: clusterIP, dstPort: 53 } });
 * ```
 */
export { decodeConntrack } from "./codec.ts";
export { FakeConntrack } from "./fake.ts";
export { openConntrack } from "./port.ts";
export type { ConntrackEntry, ConntrackPort } from "./types.ts";
