import { type KubeObject, type ResourceType, resourceType, type StoredMeta } from "#kube/client";
import type { Static } from "#kube/crd";
import { API_GROUP, NIC_VERSION } from "./keys.ts";
import type {
  CLAIM_PHASES,
  nicClaimSpecSchema,
  nicClaimStatusSchema,
  nicConditionSchema,
  nicPolicySpecSchema,
  nicSchema,
  nicStatusSchema,
} from "./schemas.ts";

/** One NIC with a name, as claims have it. */
export type NamedNic = Static<typeof nicSchema>;
/** One NIC as a pod asks for it: the name may be missing. */
export type Nic = Partial<NamedNic>;
/** The state of one NIC. */
export type NicStatus = Static<typeof nicStatusSchema>;
/** `spec` of a NicClaim. */
export type NicClaimSpec = Static<typeof nicClaimSpecSchema>;
/** One condition of a NicClaim. */
export type NicCondition = Static<typeof nicConditionSchema>;
/** `status` of a NicClaim. */
export type NicClaimStatus = Static<typeof nicClaimStatusSchema>;
/** The phase of a NicClaim. */
export type NicClaimPhase = (typeof CLAIM_PHASES)[number];
/** `spec` of the NicPolicy. An empty object has all defaults. */
export type NicPolicySpec = Static<typeof nicPolicySpecSchema>;

/** The ports of one pod: namespaced, named by the pod's uid. */
export interface NicClaim extends KubeObject {
  apiVersion?: `${typeof API_GROUP}/${typeof NIC_VERSION}`;
  kind?: "NicClaim";
  metadata: StoredMeta;
  spec: NicClaimSpec;
  status?: NicClaimStatus;
}

/** The rules of a cluster: cluster-scoped, one object. */
export interface NicPolicy extends KubeObject {
  apiVersion?: `${typeof API_GROUP}/${typeof NIC_VERSION}`;
  kind?: "NicPolicy";
  metadata: StoredMeta;
  spec?: NicPolicySpec;
}

const v1alpha1 = { group: API_GROUP, version: NIC_VERSION };

/** The resource types of VPC NICs. */
export const nicResources: {
  readonly nicClaims: ResourceType<NicClaim>;
  readonly nicPolicies: ResourceType<NicPolicy>;
} = Object.freeze({
  nicClaims: resourceType<NicClaim>({ ...v1alpha1, kind: "NicClaim", plural: "nicclaims", namespaced: true }),
  nicPolicies: resourceType<NicPolicy>({ ...v1alpha1, kind: "NicPolicy", plural: "nicpolicies", namespaced: false }),
});
