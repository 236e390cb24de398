/**
 * The way in which this node decides the rules: its addresses and zone, where it takes NodePorts, how it recognizes pods.
 *
 * Owns: {@link nodeNetwork}, {@link ruleOptionsOf}, {@link contextOf}. Does not know: kernels, watches.
 */
export { addressOf, keepKnown, type NodeNetwork, nodeNetwork, unknownNode } from "./node-network.ts";
export { nodePortAddressesOf, PRIMARY_ADDRESSES } from "./node-port-addresses.ts";
export { contextOf, ruleOptionsOf } from "./rule-options.ts";
export type { NodeConfig, NodePortPlaces } from "./types.ts";
