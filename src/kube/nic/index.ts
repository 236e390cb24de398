/**
 * The API of VPC NICs (`isthmus.dev/v1alpha1`; docs/spec/vpc-nics.md#3): types, CRDs, and the keys of annotations and labels.
 *
 * Owns: schemas (the one source of the static types and of `deploy/crds`). Does not know: rules of pods' fields (`features/nic`), providers.
 *
 * ```ts
 * const claim = await client.get(nicResources.nicClaims, { namespace: "default", name: podUid });
 * claim.status?.nics?.map(({ name, state }) => `${name}=${state}`); // ["eth0=Ready"]
 * ```
 */
export { nicCrds } from "./crds.ts";
export * from "./keys.ts";
export { nodeLabelValue } from "./node-label.ts";
export { tenantText } from "./tenant-text.ts";
export {
  type NamedNic,
  type Nic,
  type NicClaim,
  type NicClaimPhase,
  type NicClaimSpec,
  type NicClaimStatus,
  type NicCondition,
  type NicPolicy,
  type NicPolicySpec,
  type NicStatus,
  nicResources,
} from "./types.ts";
