import type { Registry } from "#base/metrics";
import type {
  AgentRefusalReason,
  ConnectionRefusal,
  DialFailureReason,
  ProxyServer,
  ReverseDialResult,
  ServerLeaseMetrics,
  ServerMetrics,
} from "#features/tunnel";
import { codeName } from "../../shared/metrics/index.ts";
import { buildInfo, metricFactory } from "../../shared/tunnel/index.ts";

/** Konnectivity's buckets, seconds (docs/spec/tunnel.md#12). */
const LATENCY_BUCKETS = [1e-6, 1e-5, 1e-4, 0.005, 0.025, 0.1, 0.5, 2.5, 12.5];
const DURATION_BUCKETS = [1, 5, 15, 30, 60, 300, 900, 1800, 3600, 14_400, 43_200, 86_400];

const REASONS: Readonly<Record<DialFailureReason, true>> = {
  no_agent: true,
  error_response: true,
  unrecognized_response: true,
  send_rsp: true,
  backend_close: true,
  backend_dial_timeout: true,
  frontend_close: true,
};
const RESULTS: Readonly<Record<ReverseDialResult, true>> = {
  ok: true,
  denied: true,
  limited: true,
  stopping: true,
  dial_error: true,
  disabled: true,
};
/** Label values of refusals. */
const REFUSALS: Readonly<Record<AgentRefusalReason, string>> = {
  "no-rule": "no_rule",
  "agent-id": "agent_id",
  claim: "claim",
  limit: "limit",
  changed: "changed",
};
const CONNECTION_REFUSALS: Readonly<Record<ConnectionRefusal, true>> = {
  certificate_missing: true,
  certificate_expired: true,
  certificate_untrusted: true,
  tls: true,
  alpn: true,
  http2: true,
  unused: true,
};
const LISTENERS = { agents: true, frontends: true } as const;
/** Maximum of identities with a series of their own; the streams of further ones are counted together. */
const MAX_IDENTITIES = 1000;
const OTHER_IDENTITIES = "others";
const METHODS = ["Proxy", "Connect"] as const;

/** The objects that gauges read at each scrape. */
export interface ServerMetricSources extends Pick<ProxyServer, "backends" | "budget"> {
  /** Bytes on the links to agents since the start, TLS included. */
  readonly agentBytes: () => { readonly received: number; readonly sent: number };
  /** The number of streams of each identity; absent without rules. */
  readonly identities?: (() => ReadonlyMap<string, number>) | undefined;
}

/** Declares all metrics of the server, under Konnectivity's names. Metrics with sources have no values before the call of `observe`. */
export function serverMetrics(registry: Registry): ServerMetrics & {
  readonly lease: ServerLeaseMetrics;
  readonly observe: (sources: ServerMetricSources) => void;
} {
  const make = metricFactory(registry, "server");
  let sources: ServerMetricSources | undefined;
  const dials = make.histogram("dial_duration_seconds", "Time from a dial to the agent's answer.", LATENCY_BUCKETS);
  const writes = make.histogram("frontend_write_duration_seconds", "Time of a write to a frontend.", LATENCY_BUCKETS);
  const durations = make.histogram("connection_duration_seconds", "Duration of connections.", DURATION_BUCKETS);
  const grpc = make.gauge("grpc_connections", "Open gRPC streams: Proxy of frontends, Connect of agents.", [
    "service_method",
  ]);
  const http = make.gauge("http_connections", "Open HTTP CONNECT connections.");
  const pending = make.gauge("pending_backend_dials", "Dials without an answer.");
  const established = make.gauge("established_connections", "Open connections.");
  make.observedGauge(
    "ready_backends",
    "Agents that each strategy can use; for destHost: the hosts that the agents identify.",
    ["proxy_strategy"],
    (gauge) => {
      const backends = sources?.backends;
      if (backends === undefined) return;
      for (const strategy of new Set(backends.strategies)) {
        gauge.set({ proxy_strategy: strategy }, backends.count(strategy));
      }
    },
    // Each agent has a link to each worker.
    { aggregator: "max" },
  );
  make.observedGauge("ready_backend_connections", "Streams of agents. Deprecated: see ready_backends.", [], (gauge) =>
    gauge.set(sources?.backends.all.length ?? 0),
  );
  const full = make.gauge(
    "full_receive_channels",
    "Connect: slow consumers that block an agent's stream at the moment. Proxy: frontends that are paused because their agent accepts no bytes.",
    ["service_method"],
  );
  const failures = make.counter(
    "dial_failure_count",
    "Failed dials. reason: no_agent, error_response, unrecognized_response, send_rsp, backend_close, backend_dial_timeout, frontend_close.",
    ["reason"],
    { reason: REASONS },
  );
  const packets = make.packetCounter(
    "stream_packets_total",
    "Packets. segment: from_client, to_client, from_agent, to_agent.",
    ["segment", "packet_type"],
  );
  const errors = make.counter("stream_errors_total", "gRPC errors of streams, by segment as in stream_packets_total.", [
    "segment",
    "code",
    "packet_type",
  ]);
  const culled = make.counter("culled_leases_count", "Expired Leases that were deleted.");
  const codes = ["http_status_code"];
  const lists = make.counter("lease_list_total", "Lists of Leases.", [...codes, "reason"]);
  const deletes = make.counter("lease_delete_total", "Deletions of Leases.", [...codes, "reason"]);
  const listLatency = make.histogram("lease_list_latency_seconds", "Time of a list of Leases.", undefined, codes);
  const deleteLatency = make.histogram("lease_delete_latency_seconds", "Time of a deletion.", undefined, codes);
  const reverseDials = make.counter(
    "reverse_dials_total",
    "Dials by agents. result: ok, denied, limited, stopping, dial_error, disabled.",
    ["result"],
    { result: RESULTS },
  );
  const reverse = make.gauge("reverse_connections", "Open connections from agents to the control plane's side.");
  const slow = make.counter("slow_consumer_closed_total", "Connections closed because their reader was too slow.");
  make.observedGauge("buffered_bytes", "Bytes that all connections hold in queues.", [], (gauge) =>
    gauge.set(sources?.budget.used ?? 0),
  );
  make.observedCounter(
    "agent_stream_bytes_total",
    "Bytes on the links to agents, TLS included. direction: received, sent.",
    "direction",
    () => ({ ...sources?.agentBytes() }),
  );
  const refused = make.counter(
    "agents_refused_total",
    "Agents that the rules of --agent-identity refused. reason: no_rule, agent_id, claim, limit, changed.",
    ["reason"],
    { reason: valuesOf(REFUSALS) },
  );
  const refusedConnections = make.counter(
    "connections_refused_total",
    "Connections that ended for a fault of their peer. listener: agents, frontends. reason: certificate_missing, certificate_expired, certificate_untrusted, tls, alpn, http2, unused (no stream was accepted in time).",
    ["listener", "reason"],
    { listener: LISTENERS, reason: CONNECTION_REFUSALS },
  );
  make.observedGauge(
    "identity_streams",
    `Streams of agents by the identity of their certificate or token; those of more than ${MAX_IDENTITIES} identities as "${OTHER_IDENTITIES}".`,
    ["identity"],
    (gauge) => {
      gauge.reset();
      let at = 0;
      for (const [identity, streams] of sources?.identities?.() ?? []) {
        gauge.inc({ identity: at < MAX_IDENTITIES ? identity : OTHER_IDENTITIES }, streams);
        at += 1;
      }
    },
  );
  for (const method of METHODS) {
    grpc.set({ service_method: method }, 0);
    full.set({ service_method: method }, 0);
  }
  buildInfo(registry, "server");
  return {
    dialFailed: (reason) => failures.inc({ reason }),
    dialLatency: (seconds) => dials.observe(seconds),
    connectionDuration: (seconds) => durations.observe(seconds),
    pendingDials: (change) => pending.inc(change),
    established: (change) => established.inc(change),
    packet: (segment, type) => packets(segment, type),
    streamError: (segment, code, type) => errors.inc({ segment, code: codeName(code), packet_type: type }),
    frontendWrite: (seconds) => writes.observe(seconds),
    grpcConnections: (method, change) => grpc.inc({ service_method: method }, change),
    httpConnections: (change) => http.inc(change),
    fullReceiveChannels: (method, change) => full.inc({ service_method: method }, change),
    slowConsumerClosed: () => slow.inc(),
    reverseDial: (result) => reverseDials.inc({ result }),
    reverseConnections: (change) => reverse.inc(change),
    agentRefused: (reason) => refused.inc({ reason: REFUSALS[reason] }),
    connectionRefused: (listener, reason) => refusedConnections.inc({ listener, reason }),
    lease: {
      culled: () => culled.inc(),
      listed: ({ code, reason, seconds }) => {
        listLatency.observe({ http_status_code: code }, seconds);
        lists.inc({ http_status_code: code, reason });
      },
      deleted: ({ code, reason, seconds }) => {
        deleteLatency.observe({ http_status_code: code }, seconds);
        deletes.inc({ http_status_code: code, reason });
      },
    },
    observe: (given) => {
      sources = given;
    },
  };
}

function valuesOf(names: Readonly<Record<string, string>>): Readonly<Record<string, true>> {
  return Object.fromEntries(Object.values(names).map((name) => [name, true]));
}
