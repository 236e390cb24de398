/**
 * The host process of a lab: the API server, the scheduler and the kubelets run inside it, the suite's programs are its children.
 *
 * Owns: the state directory, the children, their restart. Does not know: the checks that are done on the cluster.
 */
export { ACCOUNT_PROGRAMS, type AccountProgram, accountOf } from "./accounts.ts";
export type { LabEgress } from "./egress.ts";
export { LabError } from "./errors.ts";
export { joinNetns } from "./exec.ts";
export { leaveCluster, removeDeadRuns } from "./guest.ts";
export type { HostEvent } from "./host.ts";
export { labPaths } from "./lab-paths.ts";
export { LAB_RIGHTS } from "./rights.gen.ts";
export { runHost } from "./run-host.ts";
export type { LabServices } from "./services.ts";
export { isRunning, type LabState, lockLab, readState, removeState } from "./state.ts";
export type { LabTunnel } from "./tunnel.ts";
export type { BuildName, LabUpgrade, SwitchRequest } from "./upgrade.ts";
export type { LabUplinks } from "./uplinks.ts";
export type { LabVpc } from "./vpc.ts";
