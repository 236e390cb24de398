/**
 * The pods' links: a veth for each attachment, host routes in a table of their own, no bridge (docs/spec/pod-network.md#5).
 *
 * Owns: links with a `COIL:` or `COIL-PENDING:` alias, the routes of its protocol in its table, one rule a family.
 * Refuses to know: which address a pod gets, gRPC, Kubernetes.
 */
export { type Alias, formatAlias, parseAlias } from "./alias.ts";
export { applyCutOff, type CutOffStep, planCutOff } from "./cut-off.ts";
export { PodNetworkError, type PodNetworkErrorCode } from "./errors.ts";
export { type AttachedPod, halfMadeLinks, joinAttachments, type UnownedLink, unownedLinks } from "./listing.ts";
export {
  calicoName,
  hostMacOf,
  hostNameOf,
  type NodeAddresses,
  type PodNetworkOptions,
  type PodPlan,
  type PodRequest,
  planPod,
} from "./plan.ts";
export { PodNetwork } from "./pod-network.ts";
export { probePodSetUp } from "./probe.ts";
export { planRepair, type RepairStep } from "./repair.ts";
export type { Survey } from "./survey.ts";
