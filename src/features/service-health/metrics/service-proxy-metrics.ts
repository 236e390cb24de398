import { Counter, Gauge, Histogram, type Registry } from "#base/metrics";
import { DURATION_BUCKETS, PROGRAMMING_BUCKETS } from "./buckets.ts";

/** The state that {@link serviceProxyMetrics} reads when metrics are collected. */
export interface CollectedHealth {
  passes(check: "healthz" | "livez"): boolean;
  readonly isNodeEligible: boolean;
}

/** Every metric of `service-proxy`, see {@link serviceProxyMetrics}. */
export type ServiceProxyMetrics = ReturnType<typeof serviceProxyMetrics>;

/**
 * Declares every metric of `service-proxy`, with kube-proxy's names where it has them (docs/spec/service-proxy.md#1.7). `rest_client_*`
 * comes with the client, `process_*` and `nodejs_*` with the registry. The health gauges are absent until {@link CollectedHealth} is set.
 */
export function serviceProxyMetrics(registry: Registry) {
  const registers = [registry];
  const family = { labelNames: ["ip_family"] as const, registers };
  let health: CollectedHealth | undefined;
  return {
    observeHealth(source: CollectedHealth): void {
      health = source;
    },
    healthState: new Gauge({
      name: "kubeproxy_health_state",
      help: "1 while the health check passes, else 0.",
      labelNames: ["check"] as const,
      registers,
      collect() {
        if (health === undefined) return;
        for (const check of ["healthz", "livez"] as const) this.set({ check }, Number(health.passes(check)));
      },
    }),
    nodeEligible: new Gauge({
      name: "kubeproxy_node_eligible",
      help: "0 while the Node is unknown, is being deleted, or has a taint that makes load balancers drain it; else 1.",
      registers,
      collect() {
        if (health !== undefined) this.set(Number(health.isNodeEligible));
      },
    }),
    healthzAnswers: new Counter({
      name: "kubeproxy_proxy_healthz_total",
      help: "Answers on /healthz by status code.",
      labelNames: ["code"] as const,
      registers,
    }),
    livezAnswers: new Counter({
      name: "kubeproxy_proxy_livez_total",
      help: "Answers on /livez by status code.",
      labelNames: ["code"] as const,
      registers,
    }),
    syncSeconds: new Histogram({
      name: "kubeproxy_sync_proxy_rules_duration_seconds",
      help: "Duration of syncs.",
      buckets: [...DURATION_BUCKETS],
      ...family,
    }),
    fullSyncSeconds: new Histogram({
      name: "kubeproxy_sync_full_proxy_rules_duration_seconds",
      help: "Duration of syncs that compare everything with the kernel.",
      buckets: [...DURATION_BUCKETS],
      ...family,
    }),
    partialSyncSeconds: new Histogram({
      name: "kubeproxy_sync_partial_proxy_rules_duration_seconds",
      help: "Duration of syncs of changes.",
      buckets: [...DURATION_BUCKETS],
      ...family,
    }),
    programmingSeconds: new Histogram({
      name: "kubeproxy_network_programming_duration_seconds",
      help: "Time from a change of a Service's endpoints to the rules in the kernel.",
      buckets: [...PROGRAMMING_BUCKETS],
      ...family,
    }),
    lastSynced: new Gauge({
      name: "kubeproxy_sync_proxy_rules_last_timestamp_seconds",
      help: "Unix time of the last successful sync.",
      ...family,
    }),
    lastQueued: new Gauge({
      name: "kubeproxy_sync_proxy_rules_last_queued_timestamp_seconds",
      help: "Unix time at which a sync was last requested. If this is far above the time of the last success, syncs hang.",
      ...family,
    }),
    serviceChangesPending: new Gauge({
      name: "kubeproxy_sync_proxy_rules_service_changes_pending",
      help: "Changes of Services that wait for a sync.",
      registers,
    }),
    serviceChanges: new Counter({
      name: "kubeproxy_sync_proxy_rules_service_changes_total",
      help: "Changes of Services.",
      registers,
    }),
    endpointChangesPending: new Gauge({
      name: "kubeproxy_sync_proxy_rules_endpoint_changes_pending",
      help: "Changes of EndpointSlices that wait for a sync.",
      registers,
    }),
    endpointChanges: new Counter({
      name: "kubeproxy_sync_proxy_rules_endpoint_changes_total",
      help: "Changes of EndpointSlices.",
      registers,
    }),
    noLocalEndpoints: new Gauge({
      name: "kubeproxy_sync_proxy_rules_no_local_endpoints_total",
      help: "Service ports of policy Local that have endpoints, but none on this node.",
      labelNames: ["traffic_policy", "ip_family"] as const,
      registers,
    }),
    syncFailures: new Counter({
      name: "kubeproxy_sync_proxy_rules_nftables_sync_failures_total",
      help: "Failed syncs.",
      ...family,
    }),
    cleanupFailures: new Counter({
      name: "kubeproxy_sync_proxy_rules_nftables_cleanup_failures_total",
      help: "Failed removals of stale objects.",
      ...family,
    }),
    flowSeconds: new Histogram({
      name: "kubeproxy_conntrack_reconciler_sync_duration_seconds",
      help: "Duration of passes over connection tracking for stale UDP flows.",
      buckets: [...DURATION_BUCKETS],
      ...family,
    }),
    deletedFlows: new Counter({
      name: "kubeproxy_conntrack_reconciler_deleted_entries_total",
      help: "Stale UDP flows that were deleted.",
      ...family,
    }),
    transactionBytes: new Gauge({
      name: "kubeproxy_nftables_transaction_bytes",
      help: "Bytes that the last sync wrote to the kernel.",
      ...family,
    }),
    objects: new Gauge({
      name: "kubeproxy_nftables_objects",
      help: "Front ends and endpoints in the table, counted at most every 5 s, and clients that session affinity remembers, counted each 5 s.",
      labelNames: ["kind", "ip_family"] as const,
      registers,
    }),
    lostClaims: new Gauge({
      name: "kubeproxy_lost_address_claims",
      help: "Addresses with ports, and NodePorts, that Services request and do not get, because they belong to other Services or to nodes.",
      ...family,
    }),
    affinityTrimmed: new Counter({
      name: "kubeproxy_affinity_trimmed_clients_total",
      help: "Clients that Services above their share of session affinity have lost, the oldest ones first.",
      ...family,
    }),
    driftRepairs: new Counter({
      name: "kubeproxy_drift_repairs_total",
      help: "Repairs of changes that other programs made to the proxy's tables.",
      registers,
    }),
    contested: new Gauge({
      name: "kubeproxy_nftables_contested",
      help: "1 while another program repeatedly changes the proxy's tables, else 0.",
      registers,
    }),
    watchErrors: new Counter({
      name: "kubeproxy_watch_errors_total",
      help: "Watches and lists that failed.",
      labelNames: ["resource", "reason"] as const,
      registers,
    }),
    watchConnected: new Gauge({
      name: "kubeproxy_watch_connected",
      help: "1 while a resource is listed and watched, else 0.",
      labelNames: ["resource"] as const,
      registers,
    }),
    buildInfo: new Gauge({
      name: "kubernetes_build_info",
      help: "Always 1; its labels name the build that runs.",
      labelNames: ["git_version", "compiler", "platform"] as const,
      registers,
    }),
    featureEnabled: new Gauge({
      name: "kubernetes_feature_enabled",
      help: "1 if a feature gate is on, else 0.",
      labelNames: ["name", "stage"] as const,
      registers,
    }),
  };
}
