import { Counter, Gauge, type Registry } from "#base/metrics";
import type {
  DialFailureReason,
  ProxyServer,
  ReverseDialResult,
  ServerLeaseMetrics,
  ServerMetrics,
} from "#features/tunnel";
import { codeName } from "../grpc-code-names.ts";
import { buildInfo, maker, PREFIX } from "./metrics.ts";

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

/** Declares all metrics of the server, under Konnectivity's names. */
export function serverMetrics(registry: Registry): ServerMetrics & { readonly lease: ServerLeaseMetrics } {
  const make = maker(registry, "server");
  const dials = make.histogram("dial_duration_seconds", "Latency of dialing endpoints, seconds.", LATENCY_BUCKETS);
  const writes = make.histogram(
    "frontend_write_duration_seconds",
    "Latency of writes to frontends, seconds.",
    LATENCY_BUCKETS,
  );
  const durations = make.histogram(
    "connection_duration_seconds",
    "Duration of established connections, seconds.",
    DURATION_BUCKETS,
  );
  const grpc = make.gauge("grpc_connections", "Current number of gRPC streams.", ["service_method"]);
  const http = make.gauge("http_connections", "Current number of HTTP CONNECT connections.");
  const pending = make.gauge("pending_backend_dials", "Current number of dials that wait for an agent.");
  const established = make.gauge("established_connections", "Current number of end-to-end connections.");
  const full = make.gauge(
    "full_receive_channels",
    "Consumers that hold up a stream now, and frontends that are not read meanwhile.",
    ["service_method"],
  );
  const failures = make.counter("dial_failure_count", "Number of dial failures, by reason.", ["reason"], {
    reason: REASONS,
  });
  const packets = make.counter("stream_packets_total", "Packets that were processed.", ["segment", "packet_type"]);
  const errors = make.counter("stream_errors_total", "gRPC errors of streams.", ["segment", "code", "packet_type"]);
  const slow = make.counter("slow_consumer_closed_total", "Connections closed because their consumer was too slow.");
  const reverseDials = make.counter("reverse_dials_total", "Dials of agents to this side, by result.", ["result"], {
    result: RESULTS,
  });
  const reverse = make.gauge("reverse_connections", "Current number of connections from agents to this side.");
  for (const method of ["Proxy", "Connect"]) {
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
    packet: (segment, type) => packets.inc({ segment, packet_type: type }),
    streamError: (segment, code, type) => errors.inc({ segment, code: codeName(code), packet_type: type }),
    frontendWrite: (seconds) => writes.observe(seconds),
    grpcConnections: (method, change) => grpc.inc({ service_method: method }, change),
    httpConnections: (change) => http.inc(change),
    fullReceiveChannels: (method, change) => full.inc({ service_method: method }, change),
    slowConsumerClosed: () => slow.inc(),
    reverseDial: (result) => reverseDials.inc({ result }),
    reverseConnections: (change) => reverse.inc(change),
    lease: leaseMetrics(registry),
  };
}

/** Gauges that are read from the server when they are asked for. */
export function observeServer(
  registry: Registry,
  proxy: Pick<ProxyServer, "backends" | "budget">,
  agentBytes: () => { readonly received: number; readonly sent: number },
): void {
  new Gauge({
    name: `${PREFIX}server_ready_backends`,
    help: "Number of agents that each strategy could use; of their identifiers for destHost.",
    labelNames: ["proxy_strategy"],
    registers: [registry],
    collect() {
      for (const strategy of new Set(proxy.backends.strategies)) {
        this.set({ proxy_strategy: strategy }, proxy.backends.count(strategy));
      }
    },
  });
  new Gauge({
    name: `${PREFIX}server_ready_backend_connections`,
    help: "Number of streams of agents. Deprecated: see ready_backends.",
    registers: [registry],
    collect() {
      this.set(proxy.backends.all.length);
    },
  });
  new Gauge({
    name: `${PREFIX}server_buffered_bytes`,
    help: "Bytes of all connections that wait to be sent.",
    registers: [registry],
    collect() {
      this.set(proxy.budget.used);
    },
  });
  new Counter({
    name: `${PREFIX}server_agent_stream_bytes_total`,
    help: "Bytes on the links to agents, TLS included.",
    labelNames: ["direction"],
    registers: [registry],
    collect() {
      const { received, sent } = agentBytes();
      this.reset();
      this.inc({ direction: "received" }, received);
      this.inc({ direction: "sent" }, sent);
    },
  });
}

function leaseMetrics(registry: Registry): ServerLeaseMetrics {
  const make = maker(registry, "server");
  const culled = make.counter("culled_leases_count", "Number of expired Leases that were deleted.");
  const codes = ["http_status_code"];
  const listLatency = make.histogram("lease_list_latency_seconds", "Latency of listing Leases.", undefined, codes);
  const deleteLatency = make.histogram("lease_delete_latency_seconds", "Latency of deleting one.", undefined, codes);
  const lists = make.counter("lease_list_total", "Lists of Leases.", ["http_status_code", "reason"]);
  const deletes = make.counter("lease_delete_total", "Deletions of Leases.", ["http_status_code", "reason"]);
  return {
    culled: () => culled.inc(),
    listed: ({ code, reason, seconds }) => {
      listLatency.observe({ http_status_code: code }, seconds);
      lists.inc({ http_status_code: code, reason });
    },
    deleted: ({ code, reason, seconds }) => {
      deleteLatency.observe({ http_status_code: code }, seconds);
      deletes.inc({ http_status_code: code, reason });
    },
  };
}
