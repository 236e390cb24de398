/**
 * Services on nftables (docs/spec/service-proxy.md#2): one table for each family, planned from Services, slices and the Node.
 *
 * Owns: watches, plans, the tables, their lossless updates, the trace of a packet. Does not know: flags, health checks.
 *
 * ```ts
 * const tracker = new Tracker(4, { node, nodeIPs });
 * const plane = new DataPlane({ nft, elements, generations, clock, log }, { ...rules, tableName: "kube-proxy" });
 * const proxy = new FamilyProxy({ tracker, plane, conntrack, clock, log }, { minSyncMs: 1000, syncMs: 30_000 });
 * group.spawn((signal) => proxy.run({ signal }));
 * ```
 */

export {
  AddressGuard,
  type AddressMode,
  HOST_PORTS,
  OtherNodesReader,
  type PortRange,
  parsePortRanges,
} from "./addresses/index.ts";
export {
  DataPlane,
  GenerationTracker,
  isOwnTable,
  REPLACEMENT_SUFFIX,
  type SyncReport,
  type WantedState,
} from "./dataplane/index.ts";
export { servicesEstate } from "./estate.ts";
export {
  ExplainError,
  type Explanation,
  explainPacket,
  explanationText,
  parseQuestion,
  QUESTION_USAGE,
  type Question,
} from "./explain/index.ts";
export {
  type ConntrackSettings,
  checkKernelVersion,
  hasLegacyNat,
  kernelRelease,
  leftovers,
  prepareKernel,
  SKIP_VERSION_CHECK,
  serviceRanges,
  setOomScore,
  supportedFamilies,
  tryConstructs,
} from "./host/index.ts";
export { serviceWarnings, sourceRangeFaults, watchInputs } from "./inputs/index.ts";
export { LocalNodePorts, localNodePorts } from "./localhost/index.ts";
export {
  keepKnown,
  type NodeNetwork,
  type NodePortPlaces,
  nodeNetwork,
  PRIMARY_ADDRESSES,
  unknownNode,
} from "./node/index.ts";
export { type AddressClaim, frontEndId } from "./plan/index.ts";
export { SETS } from "./rules/index.ts";
export {
  AffinityFill,
  DriftWatch,
  FamilyProxy,
  type LostClaim,
  NodeAwareProxy,
  type NodeAwareProxyConfig,
  type ProxyKernel,
  type SyncObserver,
} from "./run/index.ts";
export { portsOf, type ServiceSteps, type SliceView, Tracker, tooLargeText } from "./track/index.ts";
