export { commandRunner, iptablesFilter } from "./iptables-filter.ts";
export { nftFilter } from "./nft-filter.ts";
export type { FilterBackend, FilterCounter, FilterKinds, FilterRule } from "./types.ts";
