export { commandRunner, IptablesError, iptablesFilter } from "./iptables-filter.ts";
export { nftFilter } from "./nft-filter.ts";
export { openFilters } from "./open.ts";
export {
  diffComments,
  type FilterBackend,
  type FilterCounter,
  type FilterKinds,
  type FilterRule,
  type ListedRule,
} from "./types.ts";
