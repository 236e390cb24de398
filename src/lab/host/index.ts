/**
 * The host process of a lab: the API server, the scheduler and the kubelets run inside it, the suite's programs are its children.
 *
 * Owns: the state directory, the children, their restart. Does not know: the checks that are done on the cluster.
 */
export { joinNetns } from "./exec.ts";
export { leaveCluster, removeDeadRuns } from "./guest.ts";
export { type HostEvent, LabError, runHost } from "./host.ts";
export { labPaths } from "./lab-paths.ts";
export type { LabServices } from "./services.ts";
export { isRunning, type LabState, lockLab, readState, removeState } from "./state.ts";
export type { LabTunnel } from "./tunnel.ts";
export type { LabUplinks } from "./uplinks.ts";
