/**
 * A health port for each Service of policy Local.
 *
 * Owns: the listeners, their answers, their retries. Does not know: watches, how endpoints are found.
 */
export { lacksHealthPort, type PortView, type ServiceHealth, serviceHealth } from "./count.ts";
export { type OpenService, planPorts } from "./plan.ts";
export { ServicePorts } from "./service-ports.ts";
