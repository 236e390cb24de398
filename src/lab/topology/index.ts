/**
 * The machines of a lab: each node a network namespace, joined by a bridge in a namespace of its own. They do
 * not change the machine's own network.
 *
 * Owns: the namespaces `isthmus-<lab>-<machine>` and those of the lab's pods, and the processes in them. Does not know: Kubernetes.
 */
export { buildTopology } from "./build.ts";
export { siteAddress } from "./build-outside.ts";
export type { LabNode } from "./lab-node.ts";
export { podNetnsPrefix } from "./names.ts";
export {
  LAB_NAME_PATTERN,
  type NodeFamilies,
  planTopology,
  type Topology,
} from "./plan.ts";
export { processesIn, removeTopology } from "./remove.ts";
export { closeControlPlane } from "./tunnel-firewall.ts";
export { breakUplink, healUplink, UPLINK_FAULTS, type UplinkFault } from "./uplink-faults.ts";
export type { OnLink, Uplinks } from "./uplinks.ts";
