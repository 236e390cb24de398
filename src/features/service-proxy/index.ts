/**
 * Services on nftables (docs/spec/service-proxy.md#2): a table for each family whose content is a function of Services, slices and the Node.
 *
 * Owns: what the table holds, how it is updated without a lost connection, what a packet meets in it. Refuses to know: the API's
 * watches, flags, health checks.
 *
 * ```ts
 * const tracker = new Tracker(4, { node, nodeIPs });
 * const plane = new DataPlane({ nft, elements, generations }, { ...rules, tableName: "kube-proxy" });
 * const proxy = new FamilyProxy({ tracker, plane, conntrack }, { minSyncMs: 1000, syncMs: 30_000 });
 * group.spawn((signal) => proxy.run({ signal }));
 * ```
 */
export {
  checkConstructs,
  DataPlane,
  type DataPlaneDeps,
  DataPlaneError,
  type DataPlaneErrorCode,
  type Desired,
  GenerationTracker,
  REPLACEMENT_SUFFIX,
  type SyncReport,
} from "./dataplane/index.ts";
export { type Endpoint, type NodeInfo, type Protocol, type ServicePort, servicePortId } from "./model/index.ts";
export { addressBytes, addressKey, frontEndId, type ObservedFrontEnd, portBytes, WantedTable } from "./plan/index.ts";
export type { PodDetector, RuleOptions } from "./rules/index.ts";
export { DriftWatch, FamilyProxy, type FamilyProxyOptions, type LostClaim, type SyncObserver } from "./run/index.ts";
export {
  type Outcome,
  type Packet,
  type Step,
  type Trace,
  type TracedElement,
  type TracedTable,
  trace,
  traceAll,
  type TraceContext,
  traceContext,
} from "./trace/index.ts";
export {
  type NodeContext,
  PROXY_NAME_LABEL,
  portsOf,
  SERVICE_SHAPE,
  SLICE_SHAPE,
  type SliceView,
  sliceView,
  type TrackedPort,
  Tracker,
} from "./track/index.ts";
