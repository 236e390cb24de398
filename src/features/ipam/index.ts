/**
 * Address management: pools hold blocks, nodes own blocks, attachments hold addresses (docs/spec/pod-network.md#3 and #4).
 *
 * Owns: the controller's part (it makes blocks out of pools, and deletes the blocks of nodes that are gone), the node's allocator of
 * addresses, the comparison of API, memory and kernel (audit). Does not know: links, routes, CNI.
 * All state is in the API server, or in memory that is rebuilt at start-up.
 *
 * ```ts
 * const ipam = new NodeIpam({ source, log, clock, onBlocksChanged }, { collectIntervalMs: 300_000, releaseDelayMs: 0 });
 * ipam.remember(attachmentsOfTheKernel);
 * await ipam.learn({ signal });
 * const { ipv4 } = await ipam.allocate("default", { containerId, ifname: "eth0" }, { signal });
 * ```
 */

export type { Attachment, LostAttachment } from "./attachments.ts";
export { type AuditedBlock, type AuditedNode, type AuditedPod, type AuditInput, audit, type Finding } from "./audit.ts";
export type { ChainedNode } from "./audit-chained.ts";
export { type AuditCoverage, auditCluster } from "./audit-cluster.ts";
export { BlockRequestReconciler } from "./block-requests.ts";
export { IpamError } from "./errors.ts";
export { isBeingDeleted, KubeBlockSource } from "./kube-block-source.ts";
export { FRESH_MS, NodeIpam } from "./node-ipam.ts";
export { type KnownCluster, OrphanCollector } from "./orphan-collector.ts";
export { reconcilePool } from "./pool-lifecycle.ts";
export { PoolManager, type PoolStats } from "./pool-manager.ts";
