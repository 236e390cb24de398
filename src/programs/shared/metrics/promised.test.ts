import assert from "node:assert/strict";
import { test } from "node:test";
import { PROGRAMS } from "../../programs.ts";
import { declaredMetrics } from "./testing/declared.ts";

type Type = "counter" | "gauge" | "histogram";
/** `name{label,label}` by type; dashboards and alerts of users rely on them. */
type Promised = Partial<Record<Type, readonly string[]>>;

const CLIENT = "rest_client_requests_total{code,method,host}";
/** Every program with {@link CLIENT} has this too. */
const CLIENT_DURATION = "histogram rest_client_request_duration_seconds{verb,host}";
const ASIDE = "isthmus_controller_objects_set_aside{controller}";
const KONNECTIVITY = "konnectivity_network_proxy_";

const CONTROLLER = {
  counter: [
    "controller_runtime_reconcile_total{controller,result}",
    "controller_runtime_reconcile_errors_total{controller}",
    "controller_runtime_reconcile_panics_total{controller}",
    "controller_runtime_webhook_requests_total{webhook,code}",
    "certwatcher_read_certificate_total",
    "certwatcher_read_certificate_errors_total",
    "coil_controller_webhook_certificate_renewals_total",
    CLIENT,
  ],
  gauge: [
    "coil_controller_webhook_certificate_expiry_timestamp_seconds",
    "workqueue_depth{name}",
    "leader_election_master_status{name}",
    ASIDE,
  ],
  histogram: [
    "controller_runtime_reconcile_time_seconds{controller}",
    "controller_runtime_webhook_latency_seconds{webhook}",
  ],
} satisfies Promised;

/** docs/spec/pod-network.md#15, docs/spec/tunnel.md#12, docs/spec/service-proxy.md#1.7. */
const PROMISED: Readonly<Record<string, Promised>> = {
  // Coil's, and controller-runtime's in it.
  coild: {
    counter: [
      "grpc_server_started_total{grpc_type,grpc_service,grpc_method}",
      "grpc_server_handled_total{grpc_type,grpc_service,grpc_method,grpc_code}",
      "grpc_server_msg_received_total{grpc_type,grpc_service,grpc_method}",
      "grpc_server_msg_sent_total{grpc_type,grpc_service,grpc_method}",
      "coil_coild_kernel_repairs_total{kind}",
      "coil_coild_source_guard_packets_total{reason}",
      "coil_coild_conflicts_total",
      "coil_coild_attachments_collected_total",
      CLIENT,
    ],
    gauge: [
      "coil_coild_addresses{pool,state}",
      "coil_coild_blocks{pool}",
      "coil_coild_unknown_addresses",
      "coil_coild_cut_off_attachments",
      "coil_coild_node_twin",
      "coil_coild_nat_clients",
      "coil_coild_nat_clients_translated",
      ASIDE,
      "coil_coild_egress_router_up{namespace,egress,router}",
      "coil_coild_egress_router_clients{namespace,egress,router}",
      "coil_coild_tunnel_driver_info{driver}",
    ],
    histogram: ["coil_coild_cni_duration_seconds{command,code}", "coil_coild_block_wait_seconds"],
  },
  "coil-ipam-controller": withPools(),
  "coil-egress-controller": CONTROLLER,
  "coil-controller": withPools(),
  // docs/spec/vpc-nics.md#11
  "nic-controller": {
    counter: [
      ...CONTROLLER.counter,
      "vpc_api_requests_total{op,code,type}",
      "vpc_orphans_deleted_total",
      "vpc_duplicate_ports_total",
      "vpc_token_refresh_total{result}",
    ],
    gauge: [
      ...CONTROLLER.gauge,
      "vpc_claims{phase}",
      "vpc_claim_age_seconds{phase}",
      "vpc_circuit_open{provider}",
      "vpc_queue_depth",
    ],
    histogram: [
      ...CONTROLLER.histogram,
      "vpc_port_create_seconds{provider,bulk}",
      "vpc_bulk_size",
      "vpc_port_active_seconds",
    ],
  },
  "coil-router": {
    counter: ["coil_router_syncs_total{node}", CLIENT],
    gauge: ["coil_router_routes_synced{node}", "coil_router_blocks_skipped{node}"],
  },
  "nic-agent": {
    counter: ["vpc_cni_calls_total{method,code}", "vpc_ports_replugged_total", CLIENT],
    gauge: [ASIDE],
    histogram: ["vpc_cni_add_seconds{step}"],
  },
  "coil-egress": {
    counter: [
      ...["masqueraded", "invalid"].flatMap((what) =>
        ["packets", "bytes"].map((unit) => `coil_egress_nftables_${what}_${unit}_total{namespace,pod,egress,protocol}`),
      ),
      "coil_egress_dropped_packets_total{namespace,pod,egress,reason}",
      CLIENT,
    ],
    gauge: [
      "coil_egress_client_pod_count{namespace,egress}",
      "coil_egress_crowded_destinations{namespace,pod,egress,protocol}",
      "coil_egress_client_pod_info{namespace,pod,pod_ip,interface,egress,egress_namespace}",
      "coil_egress_nf_conntrack_entries_count{namespace,pod,egress}",
      "coil_egress_nf_conntrack_entries_limit{namespace,pod,egress}",
      "coil_egress_refused_pod_count{namespace,egress,reason}",
      "coil_egress_tunnel_driver_info{driver}",
      "coil_egress_unchecked{namespace,egress,check}",
    ],
  },
  // Konnectivity's.
  "proxy-server": {
    counter: [
      ...konnectivity("server", [
        "dial_failure_count{reason}",
        "stream_packets_total{segment,packet_type}",
        "stream_errors_total{segment,code,packet_type}",
        "culled_leases_count",
        "lease_delete_total{http_status_code,reason}",
        "lease_list_total{http_status_code,reason}",
        "reverse_dials_total{result}",
        "slow_consumer_closed_total",
        "agent_stream_bytes_total{direction}",
        "agents_refused_total{reason}",
        "connections_refused_total{listener,reason}",
      ]),
      CLIENT,
    ],
    gauge: konnectivity("server", [
      "grpc_connections{service_method}",
      "http_connections",
      "identity_streams{identity}",
      "pending_backend_dials",
      "established_connections",
      "ready_backend_connections",
      "ready_backends{proxy_strategy}",
      "full_receive_channels{service_method}",
      "reverse_connections",
      "buffered_bytes",
      "build_info{version,runtime}",
    ]),
    histogram: konnectivity("server", [
      "dial_duration_seconds",
      "frontend_write_duration_seconds",
      "connection_duration_seconds",
      "lease_delete_latency_seconds{http_status_code}",
      "lease_list_latency_seconds{http_status_code}",
    ]),
  },
  "proxy-agent": {
    counter: [
      ...konnectivity("agent", [
        "endpoint_dial_failure_total{reason}",
        "server_connection_failure_count{direction}",
        "stream_packets_total{segment,packet_type}",
        "stream_errors_total{segment,code,packet_type}",
        "lease_lists_total{http_response_code,reason}",
        "lease_watches_total{http_response_code,reason}",
        "reverse_accepted_total{target}",
        "reverse_failures_total{reason}",
        "reconnects_total",
      ]),
      CLIENT,
    ],
    gauge: konnectivity("agent", [
      "open_server_connections",
      "open_endpoint_connections",
      "known_server_count",
      "full_receive_channels",
      "reverse_connections",
      "buffered_bytes",
      "build_info{version,runtime}",
    ]),
    histogram: konnectivity("agent", ["dial_duration_seconds", "lease_list_latency_seconds{http_response_code}"]),
  },
  // kube-proxy's.
  "service-proxy": {
    counter: [
      "kubeproxy_proxy_healthz_total{code}",
      "kubeproxy_proxy_livez_total{code}",
      "kubeproxy_sync_proxy_rules_endpoint_changes_total",
      "kubeproxy_sync_proxy_rules_service_changes_total",
      "kubeproxy_sync_proxy_rules_nftables_sync_failures_total{ip_family}",
      "kubeproxy_sync_proxy_rules_nftables_cleanup_failures_total{ip_family}",
      "kubeproxy_conntrack_reconciler_deleted_entries_total{ip_family}",
      "kubeproxy_drift_repairs_total",
      "kubeproxy_affinity_trimmed_clients_total{ip_family}",
      "kubeproxy_watch_errors_total{resource,reason}",
      CLIENT,
    ],
    gauge: [
      ASIDE,
      "kubeproxy_sync_proxy_rules_last_timestamp_seconds{ip_family}",
      "kubeproxy_sync_proxy_rules_last_queued_timestamp_seconds{ip_family}",
      "kubeproxy_sync_proxy_rules_endpoint_changes_pending",
      "kubeproxy_sync_proxy_rules_service_changes_pending",
      "kubeproxy_sync_proxy_rules_no_local_endpoints_total{traffic_policy,ip_family}",
      "kubeproxy_health_state{check}",
      "kubeproxy_node_eligible",
      "kubeproxy_nftables_transaction_bytes{ip_family}",
      "kubeproxy_nftables_objects{kind,ip_family}",
      "kubeproxy_nftables_contested",
      "kubeproxy_lost_address_claims{ip_family}",
      "kubeproxy_watch_connected{resource}",
      "kubernetes_build_info{git_version,compiler,platform}",
      "kubernetes_feature_enabled{name,stage}",
    ],
    histogram: [
      "kubeproxy_sync_proxy_rules_duration_seconds{ip_family}",
      "kubeproxy_sync_full_proxy_rules_duration_seconds{ip_family}",
      "kubeproxy_sync_partial_proxy_rules_duration_seconds{ip_family}",
      "kubeproxy_network_programming_duration_seconds{ip_family}",
      "kubeproxy_conntrack_reconciler_sync_duration_seconds{ip_family}",
    ],
  },
  // EVE's proxy serves counters as JSON (/healthz, MetricsMap) and no Prometheus metrics: these names are ours.
  "uplink-proxy": {
    counter: [
      ...[
        "requests",
        "dial_failures",
        "overload",
        "denied",
        "idle_closed",
        "replays",
        "blackholes",
        "wrong_tokens",
      ].map((name) => `uplink_proxy_${name}_total`),
      ...["tunnels", "attempt_failures", "fallbacks", "sent_bytes", "received_bytes"].map(
        (name) => `uplink_proxy_${name}_total{interface}`,
      ),
    ],
    gauge: [
      "uplink_proxy_active_tunnels{interface}",
      "uplink_proxy_uplink_failed{uplink}",
      "uplink_proxy_penalties{uplink}",
    ],
  },
  "sni-router": {
    counter: [
      "sni_router_connections_total{route,result}",
      "sni_router_bytes_total{route,direction}",
      "sni_router_backend_failures_total{backend}",
      "sni_router_reloads_total{result}",
    ],
    gauge: ["sni_router_active_connections"],
  },
  node: { counter: ["isthmus_node_part_restarts_total{part}"] },
};

function konnectivity(side: "server" | "agent", names: readonly string[]): string[] {
  return names.map((name) => `${KONNECTIVITY}${side}_${name}`);
}

for (const name of Object.keys(PROGRAMS)) {
  test(`${name}: declares every metric that it promises, with type and labels, and no other`, async () => {
    const found = (await declaredMetrics(name)).map(({ name: metric, type, labelNames }) => {
      const labels = labelNames.length === 0 ? "" : `{${labelNames.join(",")}}`;
      return `${type} ${metric}${labels}`;
    });
    const promised = Object.entries(PROMISED[name] ?? {}).flatMap(([type, names]) =>
      names.map((one) => `${type} ${one}`),
    );
    if (promised.includes(`counter ${CLIENT}`)) promised.push(CLIENT_DURATION);
    assert.deepEqual(found.sort(), promised.sort());
  });
}

/** The metrics of a controller of AddressPools. */
function withPools(): Promised {
  const pools = ["coil_controller_max_blocks{pool}", "coil_controller_allocated_blocks{pool}"];
  return { ...CONTROLLER, gauge: [...CONTROLLER.gauge, ...pools] };
}
