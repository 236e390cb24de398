/**
 * NICs of pods that are ports of a cloud's network (docs/spec/vpc-nics.md).
 *
 * Owns: the fields of pods with their defaults and rules, admission, what pods show of the state, the converter of Arktos' manifests, the
 * hand-over to VM runtimes. Does not know: providers of VPCs, API servers, kernels.
 *
 * ```ts
 * const nics = readPodNics(pod, { defaultVpc });
 * if (nics.kind === "wanted") claim(nics.vpc, nics.nics); // [{ name: "eth0", subnet: "subnet-1" }]
 * ```
 */
export { NIC_WEBHOOK_PATHS, type NicAdmissionDeps, nicAdmissionHandlers } from "./admission/handlers.ts";
export {
  countedPorts,
  isOfAnyProject,
  type NamespaceView,
  type NicLimit,
  nicLimit,
  type Tenant,
  tenantOf,
  type VpcAccess,
  type VpcBinding,
  vpcAccess,
} from "./admission/policy.ts";
export type { NicWorld } from "./admission/reviewed-pod.ts";
export { CONVERT_TO, type ConvertFault, type ConvertOptions, convertManifests } from "./convert/convert.ts";
export type { VmRuntime } from "./convert/to-kubernetes.ts";
export { NicError, type NicErrorCode } from "./errors.ts";
export { defaultNics, PRIMARY_NIC } from "./fields/defaults.ts";
export { type PodNics, readPodNics, type WantedNics } from "./fields/pod.ts";
export { updateFaults } from "./fields/update.ts";
export { wishFaults } from "./fields/validate.ts";
export { type CloudInitNetwork, cloudInitNetwork } from "./hand-over/cloud-init.ts";
export {
  formatCniArgs,
  type HandedNic,
  type HandOver,
  handOverAnnotations,
  parseHandOver,
} from "./hand-over/cni-args.ts";
export { defaultNic, gatewaysOf, isDefaultRoute, routeMetric } from "./status/default-nic.ts";
export {
  NETWORK_STATUS_ANNOTATION,
  type PodCondition,
  type PodSurface,
  planPodSurface,
  podSurface,
  type ShownPod,
  waitingText,
} from "./status/pod-surface.ts";
