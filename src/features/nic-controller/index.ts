/**
 * The controller of VPC NICs (docs/spec/vpc-nics.md#5): a claim for each pod that asks for NICs, and the ports of each claim, from the first
 * look-up to the release.
 *
 * Owns: the states of claims, the identity of ports, what is retried and when, the collection of orphans. Does not know: which cloud it is, the
 * fields of pods and the rules of a policy ({@link NicRules}), informers, leader election.
 *
 * ```ts
 * const reconciler = new ClaimReconciler({ api, cluster, rules, provider, observer, log, clock, random }, { clusterId, signal, enqueue, polls });
 * await reconciler.reconcile("default/6f0e…", { signal });
 * ```
 */
export { NicControllerError } from "./errors.ts";
export { type ClusterIdentity, clusterIdentity } from "./plan/cluster-id.ts";
export { DEVICE_OWNER, ownPorts } from "./plan/identity.ts";
export { orphansOf } from "./plan/orphans.ts";
export { ClaimReconciler } from "./run/claim-reconciler.ts";
export type { NicObserver } from "./run/deps.ts";
export { guardedApi } from "./run/guarded-api.ts";
export { GuardedProvider } from "./run/guarded-provider.ts";
export { CLAIM_WORKERS } from "./run/lanes.ts";
export { OrphanCollector, type OrphanEnd } from "./run/orphan-collector.ts";
export { PortPoller } from "./run/poller.ts";
export type { NamespaceView, NicCluster, NicRules, NodeView, PodView } from "./world.ts";
