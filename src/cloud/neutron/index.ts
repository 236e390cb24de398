/**
 * The Networking API v2.0 of OpenStack Neutron, as far as ports of pods need it.
 *
 * Owns: the requests, the reading of answers. Does not know: what a refusal means for a pod, pods, claims, when a port is made or deleted.
 *
 * ```ts
 * const neutron = new NeutronClient(new RestClient({ clock, log, auth: atNeutron(auth) }, { service: "Neutron", faultOf: neutronFault }));
 * const ports = await neutron.listPorts({ deviceIds: [podUid] }, { signal });
 * ```
 */
export {
  MAX_IDS,
  NeutronClient,
  type PortChange,
  type PortDraft,
  type PortFilter,
  STATUS_FIELDS,
} from "./client.ts";
export { atNeutron } from "./endpoint.ts";
export { neutronFault } from "./faults.ts";
export {
  type NeutronNetwork,
  type NeutronPort,
  type NeutronSecurityGroup,
  type NeutronSubnet,
  read,
} from "./objects.ts";
