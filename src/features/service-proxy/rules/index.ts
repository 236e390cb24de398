/**
 * The rules of the data plane as data: printed or compiled for the kernel, walked by `explain` and the tests (docs/spec/service-proxy.md#2.7).
 *
 * Owns: chains, sets, shapes, their nft(8) text. Does not know: Services; those are elements.
 */
export { AFFINITY_CHAINS, affinityChains, baseChains, REJECT_CHAIN } from "./base-chains.ts";
export { compileRule, isCompiled } from "./compile.ts";
export { printRule } from "./print.ts";
export {
  AFFINITY_ENTRIES,
  affinityNodePortSet,
  affinitySet,
  affinitySetSpecs,
  SETS,
  setSpecs,
  slotMaps,
} from "./sets.ts";
export { parseShape, type Shape, shapeChains, shapeName } from "./shapes.ts";
export type { Action, Chain, KeyPart, Match, PodDetector, Rule, RuleOptions } from "./types.ts";
