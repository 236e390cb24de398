/**
 * The API of Coil v2 (`coil.cybozu.com/v2`; docs/spec/pod-network.md#2): types, CRDs, keys and the pure rules.
 *
 * Owns: schemas (the one source of the static types and of `deploy/crds`), validation, defaults, the arithmetic of blocks.
 * Does not know: API servers, the callers of the rules, kernels.
 *
 * ```ts
 * const pool = await client.get(coilResources.addressPools, { name: "default" });
 * const layout = parsePool(pool.spec);
 * blockCidrs(layout, 4)?.ipv4?.toString(); // "10.3.0.0/31"
 * ```
 */
export {
  type AdmissionContext,
  type CoilAdmission,
  coilAdmission,
  coilAdmissions,
  webhookPathOf,
} from "./admission.ts";
export { blockRequestResult } from "./block-request.ts";
export {
  type BlockCidrs,
  blockCidrs,
  blockName,
  MAX_BLOCK_INDEX,
  maxBlocks,
  type PoolLayout,
  parsePool,
  poolFamilies,
  subnetsOverlap,
} from "./blocks.ts";
export { coilCrds } from "./crds.ts";
export { egressDefaults, poolDefaults } from "./defaults.ts";
export { outsideOfRanges } from "./egress-addresses.ts";
export { validateEgress } from "./egress-validation.ts";
export * from "./keys.ts";
export { compileSelector, type LabelMatcher } from "./label-selector.ts";
export { MAX_QUANTITY_LENGTH, podSpecFaults, ROUTER_CONTAINER } from "./pod-template.ts";
export { validatePoolCreate, validatePoolUpdate } from "./pool-validation.ts";
export {
  type AddressBlock,
  type AddressPool,
  type AddressPoolSpec,
  type BlockRequest,
  type BlockRequestCondition,
  type BlockRequestSpec,
  type BlockRequestStatus,
  type ClientEntry,
  coilResources,
  type Egress,
  type EgressPodTemplate,
  type EgressSpec,
  type SpecifiedEgress,
  type SubnetSet,
} from "./types.ts";
