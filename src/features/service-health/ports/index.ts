/**
 * Health checks for each Service of policy Local.
 *
 * Owns: which ports are listened on, what they answer, trying again. Refuses to know: watches, how endpoints are found.
 */
export { lacksHealthPort, type PortView, type ServiceHealth, serviceHealth } from "./count.ts";
export { MAX_RETRY_MS, MIN_RETRY_MS } from "./family-ports.ts";
export { type OpenService, type PortChange, planPorts } from "./plan.ts";
export { ServicePorts, type ServicePortsDeps, type ServicePortsOptions } from "./service-ports.ts";
