/**
 * Code that the daemons share: flags of logs, endpoints and the API server, and small conversions that several daemons need.
 *
 * Owns: flags and values with one meaning in all daemons. Does not know: any daemon's task.
 */
export { endpointFlags } from "./endpoint-flags.ts";
export { followServers } from "./follow-servers.ts";
export { informerHealth } from "./informer-health.ts";
export { kubeFlags, openClient } from "./kube-client.ts";
export { coilLogFlags, type LogValues, logFlags, loggerOf } from "./log-flags.ts";
export { internalAddresses, requireNodeName } from "./this-node.ts";
