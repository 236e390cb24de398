/**
 * The controller of Egresses (docs/spec/pod-network.md#8): routers, their Service, disruption budget, account and rights.
 *
 * Owns: the objects that belong to an Egress, and the subjects of one ClusterRoleBinding. Does not know: tunnels, informers.
 *
 * ```ts
 * const router = async () => ({ image, backend: "nftables", tunnelDriver: "auto", port: 5555, inCluster: [], metricsFrom: [] } as const);
 * const reconciler = new EgressReconciler({ api, caches, router, log });
 * await reconciler.reconcile("internet/nat", { signal });
 * ```
 */
export { egressOfPool } from "./address-pool.ts";
export { reconcileBinding } from "./binding.ts";
export { EgressReconciler } from "./egress-reconciler.ts";
export type { RouterSettings } from "./router-pod.ts";
