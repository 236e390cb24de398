/**
 * The objects of a lab's cluster and the checks of it: pools, namespaces, workloads, connectivity.
 *
 * Owns: the default scenario, waiting for it, the report. Does not know: how the cluster was built.
 */
export { applyScenario } from "./apply.ts";
export { type ChainedNode, type ChainedReport, chainedWorks, verifyChained } from "./chained-verify.ts";
export { defaultScenario } from "./default.ts";
export { egressWorks } from "./egress-report.ts";
export { verifyEgress } from "./egress-verify.ts";
export { type ObservedCluster, observeCluster, waitForPods } from "./observe.ts";
export { type LabReport, reachesAll, renderReport } from "./report.ts";
export { servicesWork } from "./services-report.ts";
export { verifyServices } from "./services-verify.ts";
export { type TunnelReport, tunnelWorks } from "./tunnel-report.ts";
export { verifyTunnel } from "./tunnel-verify.ts";
export { upgradeWorks } from "./upgrade-report.ts";
export { verifyUpgrade } from "./upgrade-verify.ts";
export { type UplinksReport, uplinksWork } from "./uplinks-report.ts";
export { verifyUplinks } from "./uplinks-verify.ts";
export { verifyCluster } from "./verify.ts";
export { ARKTOS_PODS, arktosPods } from "./vpc-manifests.ts";
export { vpcWorks } from "./vpc-report.ts";
export { verifyVpc } from "./vpc-verify.ts";
