/**
 * The API of Coil v2 (`coil.cybozu.com/v2`; docs/spec/pod-network.md#2): types, CRDs, keys and the pure rules.
 *
 * Owns: schemas (the one source of the static types and of `deploy/crds`), validation, defaults, the arithmetic of blocks.
 * Refuses to know: API servers, who calls the rules, kernels.
 *
 * ```ts
 * const pool = await client.get(coilResources.addressPools, { name: "default" });
 * const layout = parsePool(pool.spec);
 * blockCidrs(layout, 4)?.ipv4?.toString(); // "10.3.0.0/31"
 * ```
 */
export { type BlockRequestResult, blockRequestResult } from "./block-request.ts";
export {
  type BlockCidrs,
  blockCidrs,
  blockName,
  DEFAULT_BLOCK_SIZE_BITS,
  MAX_BLOCK_INDEX,
  maxBlocks,
  type ParsedSubnet,
  type PoolLayout,
  parsePool,
  poolFamilies,
  subnetBlocks,
  subnetsOverlap,
} from "./blocks.ts";
export { type CrdManifest, coilCrds, type PrinterColumn } from "./crds.ts";
export { egressDefaults, poolDefaults } from "./defaults.ts";
export { type EgressVerdict, validateEgress } from "./egress-validation.ts";
export type { FieldFault } from "./faults.ts";
export * from "./keys.ts";
export { type PoolContext, type PoolInput, validatePoolCreate, validatePoolUpdate } from "./pool-validation.ts";
export type { SchemaNode } from "./schema.ts";
export {
  type AddressBlock,
  type AddressPool,
  type AddressPoolSpec,
  type BlockRequest,
  type BlockRequestCondition,
  type BlockRequestSpec,
  type BlockRequestStatus,
  coilResources,
  type Egress,
  type EgressPodTemplate,
  type EgressSpec,
  type EgressStatus,
  type SubnetSet,
} from "./types.ts";
