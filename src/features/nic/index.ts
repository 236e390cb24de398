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
export { defaultNics, PRIMARY_NIC } from "./fields/defaults.ts";
export { type PodNics, readPodNics, type WantedNics } from "./fields/pod.ts";
