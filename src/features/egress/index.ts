/**
 * Egress NAT (docs/spec/pod-network.md#7 to #10): the tunnels between pods and gateways.
 *
 * Owns: what a client and a router have in their network namespaces, as plans, and their comparison with the kernel. Does not know: where Egresses
 * and pods come from.
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
  type PodUse,
  refusalText,
  usesFrom,
} from "./access/index.ts";
export {
  auditEgress,
  auditEgressCluster,
  type ClientSettings,
  decodeNode,
  EGRESS_FINDINGS,
  type EgressCoverage,
  type EgressFinding,
  type EgressNode,
  encodeNode,
  observeSpace,
  type PodSpace,
  type SpaceId,
} from "./audit/index.ts";
export {
  accessPod,
  type ClientEgress,
  type ClientOptions,
  type ClientRouter,
  type ClientService,
  type ClientSync,
  type ClientWish,
  type ClosedDestinations,
  clientEgress,
  clientRouter,
  clientScope,
  clientService,
  EGRESS_SERVICES,
  type EgressSource,
  faultText,
  type Gateway,
  gatewaysOf,
  type HeldEgresses,
  holderOf,
  isBeingRepaired,
  isMissing,
  isObjectRef,
  keepClosed,
  lackOfClient,
  NOTHING_HELD,
  namedEgresses,
  observeClosed,
  PRIVATE_RANGES,
  planClient,
  skipText,
  syncClient,
  tunnelSources,
  type UsingPod,
  withLackingFamilies,
} from "./client/index.ts";
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
  type FilterBackend,
  iptablesFilter,
  nftFilter,
  openFilters,
} from "./filter/index.ts";
export {
  type ClientGuardPort,
  type GuardCounter,
  GuardTable,
  openClientGuard,
  planRouterGuard,
  ROUTER_DROPS,
  ROUTER_TABLE,
} from "./guard/index.ts";
export { type NetPlan, syncNet } from "./net-plan/index.ts";
export {
  afterAnswer,
  afterTime,
  afterUnsent,
  answerTo,
  chooseRouter,
  decodeProbe,
  dueAt,
  encodeProbe,
  isAway,
  newProbeState,
  newProbeToken,
  type ProbeState,
  probePort,
  type RouterVerdict,
  verdictFor,
  withNamespaces,
  wrapProbe,
} from "./probe/index.ts";
export {
  type Admission,
  addressOwners,
  admitClients,
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
  TunnelError,
  usableAddresses,
  vxlanDriver,
} from "./tunnel/index.ts";
