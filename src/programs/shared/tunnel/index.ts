/**
 * The parts that `proxy-server` and `proxy-agent` share: flags, feature gates, klog's flags, readiness, names of metrics.
 *
 * Owns: the conventions of Konnectivity that apply to both programs. Does not know: flags and metrics that only one of the two has.
 */
export { serveEndpoints } from "./endpoints.ts";
export { checkIdentity, commaListFlag, decimalFlag, Faults, identity, TIMEOUT_BOUNDS } from "./flag-helpers.ts";
export { CLUSTER_TO_MASTER, gatesFlag } from "./gates.ts";
export { describeIneffective, logIneffectiveFlags, QUEUES_IN_BYTES } from "./ineffective-flags.ts";
export { klogFlags, klogLogger } from "./klog.ts";
export { checkWorkers, leadWorkers, ownWorker, workerCount, workersFlag } from "./lead-workers.ts";
export { buildInfo, metricFactory } from "./metric-factory.ts";
export { muxFlags, muxOptions } from "./mux-flags.ts";
export { AGENT_UNREADY, partChecks, type ReadinessCheck, SERVER_UNREADY } from "./readiness.ts";
