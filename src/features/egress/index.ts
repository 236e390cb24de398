/**
 * Egress NAT (docs/spec/pod-network.md#7 to #10): the tunnels between pods and gateways.
 *
 * Owns: what a client and a router have in their network namespaces, as plans, and their comparison with the kernel; the clients of a node (`node/`), which follow the
 * objects of the API. Does not know: calls of container runtimes, where a router's objects come from.
 *
 * ```ts
 * const { plan, skipped } = planClient(pod, gateways, { driver: vxlanDriver, port: 5555, inCluster: PRIVATE_RANGES });
 * await syncNet(podStack, plan, clientScope(5555));
 * ```
 */
export {
  AccessIndex,
  type AccessNamespace,
  type AccessPod,
  accessNamespace,
  type EgressAccess,
  type EgressRef,
  egressAccess,
  egressUse,
  refusalText,
  usesFrom,
} from "./access/index.ts";
export {
  auditEgress,
  auditEgressCluster,
  decodeNode,
  EGRESS_FINDINGS,
  type EgressCoverage,
  type EgressFinding,
  type EgressNode,
  encodeNode,
  observeSpace,
} from "./audit/index.ts";
export {
  accessPod,
  type ClientEgress,
  type ClientOptions,
  type ClientRouter,
  clientEgress,
  clientRouter,
  clientScope,
  clientService,
  EGRESS_SERVICES,
  type Gateway,
  namedEgresses,
  observeClosed,
  PRIVATE_RANGES,
  planClient,
  syncClient,
  tunnelSources,
} from "./client/index.ts";
export { clientEstate, routerEstate } from "./estate.ts";
export {
  type ClientWay,
  clientWayText,
  explainClientWay,
  type KnownEgresses,
  type RouterEnd,
  routerEnd,
  routerText,
} from "./explain/index.ts";
export {
  commandRunner,
  iptablesFilter,
  nftFilter,
  openFilters,
} from "./filter/index.ts";
export {
  type CrowdedDestination,
  crowdedText,
  type GuardCounter,
  GuardTable,
  listCrowded,
  masqueraded,
  openClientGuard,
  planRouterGuard,
  planShares,
  ROUTER_DROPS,
  ROUTER_TABLE,
  sharesInKernel,
} from "./guard/index.ts";
export { type NetPlan, syncNet } from "./net-plan/index.ts";
export {
  EgressClientError,
  type EgressClientErrorCode,
  type EgressClientOptions,
  EgressClients,
  FILTER_BACKENDS,
  type FilterOpeners,
  filterOpeners,
} from "./node/index.ts";
export {
  answerTo,
  encodeProbe,
  newProbeToken,
  probePort,
} from "./probe/index.ts";
export {
  type Admission,
  addressOwners,
  admitClients,
  busiestClients,
  endFlows,
  formerClients,
  OWNER_INDEXES,
  type OwnerBlock,
  type OwnerPool,
  ownerBlock,
  ownerPool,
  planRouter,
  planRules,
  type RouterClient,
  type RouterPod,
  type RuleBackend,
  routerClient,
  routerRules,
  routerScope,
  sameCandidate,
} from "./router/index.ts";
export {
  chooseDriver,
  fitsIpv6,
  fouDriver,
  isIpv6Off,
  loadDriverModules,
  TUNNEL_DRIVERS,
  type TunnelDriver,
  usableAddresses,
  vxlanDriver,
} from "./tunnel/index.ts";
