/**
 * Health checks for each Service of policy Local.
 *
 * Owns: which ports are listened on, what they answer, trying again. Refuses to know: watches, how endpoints are found.
 */
export { lacksHealthPort, type PortView, type ServiceHealth, serviceHealth } from "./count.ts";
export { type OpenService, planPorts } from "./plan.ts";
export { ServicePorts } from "./service-ports.ts";
