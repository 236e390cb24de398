/**
 * The API of Alcor's VPC, subnet and port managers, as far as ports of pods need it. Its objects are Neutron's, with the device that the agent
 * of a host makes for a port.
 *
 * Owns: the requests, the reading of answers. Does not know: what a refusal means for a pod, pods, claims.
 *
 * ```ts
 * const alcor = new AlcorClient(new RestClient({ clock, log, auth }, { service: "Alcor", faultOf: alcorFault }), { projectId });
 * const vpcs = await alcor.listVpcs({ signal });
 * ```
 */
export { AlcorClient, type AlcorPortDraft } from "./client.ts";
export { alcorFault } from "./faults.ts";
export type { AlcorPort } from "./objects.ts";
