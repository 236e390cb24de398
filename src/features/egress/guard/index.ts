/**
 * Which packets of tunnels pass: the nftables tables of a router (docs/spec/pod-network.md#9.1) and of a client (#7.7), as data, and its comparison with the kernel.
 * Knows headers, sets and rules. Does not know which pods are clients: it is given their addresses.
 */
export { type ClientGuardPort, openClientGuard } from "./client-table.ts";
export type { GuardCounter, GuardPlan } from "./plan.ts";
export {
  type CrowdedDestination,
  crowdedText,
  listCrowded,
  listRefused,
  masqueraded,
  planShares,
  type RefusedClient,
  SOURCE_PORT_COUNTS,
  sharesInKernel,
} from "./ports.ts";
export { planRouterGuard, ROUTER_DROPS, ROUTER_TABLE, type RouterGuard } from "./router-guard.ts";
export { GuardTable } from "./table.ts";
