/**
 * The pods' links: a veth for each attachment, host routes in a table of their own, no bridge (docs/spec/pod-network.md#5).
 *
 * Owns: links with a `COIL:` or `COIL-PENDING:` alias (of another plugin's link only the alias), the routes of its protocol in its table, one rule a family.
 * Does not know: which address a pod gets, gRPC, Kubernetes.
 */
export { parseAlias } from "./alias.ts";
export { ChainedNetwork } from "./chained-network.ts";
export { POD_DEFAULTS } from "./defaults.ts";
export { PodNetworkError, type PodNetworkErrorCode } from "./errors.ts";
export { ADOPTED, podNetworkEstate } from "./estate.ts";
export { findPod } from "./find-pod.ts";
export type { Remade } from "./link-memory.ts";
export { markedPlaces } from "./marked-places.ts";
export type { RecordedSteps } from "./parts.ts";
export { hostNameOf, type PodNetworkOptions, type PodRequest } from "./plan.ts";
export type { PodPlace } from "./pod-namespaces.ts";
export { PodNetwork } from "./pod-network.ts";
export { probePodSetUp } from "./probe.ts";
export type { Survey } from "./survey.ts";
