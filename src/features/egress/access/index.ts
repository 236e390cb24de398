/**
 * Which pods use an Egress (docs/spec/pod-network.md#7.5): `spec.allowedNamespaces`, `spec.clients` and the consent of Namespaces.
 * Clients on the nodes, routers and the controller ask the same functions, so that all decide alike. Pure: it knows no API server and no kernel.
 */
export {
  type AccessNamespace,
  type AccessPod,
  accessNamespace,
  type EgressAccess,
  type EgressRef,
  egressAccess,
  egressUse,
  type RefusalReason,
  refusalText,
  type UsedBy,
} from "./access.ts";
export { AccessIndex, compareRefs, type PodUse, usesFrom } from "./uses.ts";
