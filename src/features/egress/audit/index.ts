/**
 * The part of `isthmus audit` for Egress NAT: Egresses and their objects, annotations, and what the namespaces of clients and routers have.
 *
 * Owns: the state of a node's pods as data, its comparison, the kinds of findings. Does not know: sockets, how a pod's namespace is found.
 */
export type { EgressCoverage } from "./audit.ts";
export { auditEgress } from "./audit.ts";
export { auditEgressCluster } from "./cluster.ts";
export { decodeNode, encodeNode } from "./codec.ts";
export { EGRESS_FINDINGS, type EgressFinding } from "./finding.ts";
export { observeSpace } from "./observe.ts";
export type { ClientSettings, EgressNode, PodSpace, SpaceId } from "./state.ts";
