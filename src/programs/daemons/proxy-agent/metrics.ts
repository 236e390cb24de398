import type { Registry } from "#base/metrics";
import type { AgentLeaseMetrics, AgentMetrics, BufferBudget } from "#features/tunnel";
import { codeName } from "../../shared/metrics/index.ts";
import { buildInfo, metricFactory } from "../../shared/tunnel/index.ts";

/** Konnectivity's buckets, seconds (docs/spec/tunnel.md#12). */
const LATENCY_BUCKETS = [0.005, 0.025, 0.1, 0.5, 2.5, 10, 30];

/** The objects that gauges read at each scrape. */
export interface AgentMetricSources {
  readonly budget: Pick<BufferBudget, "used">;
}

/** Declares all metrics of the agent, under Konnectivity's names. Metrics that read sources are 0 before the call of `observe`. */
export function agentMetrics(registry: Registry): AgentMetrics & {
  readonly lease: AgentLeaseMetrics;
  readonly observe: (sources: AgentMetricSources) => void;
} {
  const make = metricFactory(registry, "agent");
  let sources: AgentMetricSources | undefined;
  const dials = make.histogram("dial_duration_seconds", "Time of connecting to an endpoint.", LATENCY_BUCKETS);
  const failures = make.counter(
    "endpoint_dial_failure_total",
    "Failed connection attempts to endpoints. reason: timeout, unknown.",
    ["reason"],
    { reason: ["timeout", "unknown"] },
  );
  const serverFailures = make.counter(
    "server_connection_failure_count",
    "Failed and lost streams to servers. direction: to_server for attempts, from_server for lost streams. Deprecated: see stream_errors_total.",
    ["direction"],
    { direction: ["from_server", "to_server"] },
  );
  const servers = make.gauge("open_server_connections", "Open streams to servers.");
  const endpoints = make.gauge("open_endpoint_connections", "Open connections to endpoints.");
  const known = make.gauge("known_server_count", "The known number of servers.");
  const full = make.gauge("full_receive_channels", "Slow consumers that block a server's stream at the moment.");
  const packets = make.packetCounter("stream_packets_total", "Packets. segment: from_agent, to_agent.", [
    "segment",
    "packet_type",
  ]);
  const errors = make.counter("stream_errors_total", "gRPC errors of streams, by segment as in stream_packets_total.", [
    "segment",
    "code",
    "packet_type",
  ]);
  const requestLabels = ["http_response_code", "reason"];
  const lists = make.counter("lease_lists_total", "Lists of Leases.", requestLabels);
  const watches = make.counter("lease_watches_total", "Watches of Leases.", requestLabels);
  const listLatency = make.histogram("lease_list_latency_seconds", "Time of a list of Leases.", LATENCY_BUCKETS, [
    "http_response_code",
  ]);
  const accepted = make.counter("reverse_accepted_total", "Connections to the bind addresses.", ["target"]);
  const reverseFailures = make.counter(
    "reverse_failures_total",
    "Failed connections to the bind addresses. reason: no_server, denied, dial, source, limit.",
    ["reason"],
    { reason: ["no_server", "denied", "dial", "source", "limit"] },
  );
  const reverse = make.gauge("reverse_connections", "Open connections to the control plane's side.");
  const reconnects = make.counter("reconnects_total", "Attempts to connect after a lost stream.");
  make.observedGauge("buffered_bytes", "Bytes that all connections hold in queues.", [], (gauge) =>
    gauge.set(sources?.budget.used ?? 0),
  );
  buildInfo(registry, "agent");
  return {
    dialLatency: (seconds) => dials.observe(seconds),
    dialFailed: (reason) => failures.inc({ reason }),
    endpointConnections: (change) => endpoints.inc(change),
    serverConnections: (count) => servers.set(count),
    knownServers: (count) => known.set(count),
    serverFailure: (direction) => serverFailures.inc({ direction }),
    packet: (segment, type) => packets(segment, type),
    streamError: (segment, code, type) => errors.inc({ segment, code: codeName(code), packet_type: type }),
    reconnected: () => reconnects.inc(),
    reverseAccepted: (target) => accepted.inc({ target }),
    reverseFailed: (reason) => reverseFailures.inc({ reason }),
    reverseConnections: (change) => reverse.inc(change),
    fullReceiveChannels: (change) => full.inc(change),
    lease: {
      listed: ({ code, reason, seconds }) => {
        lists.inc({ http_response_code: code, reason });
        listLatency.observe({ http_response_code: code }, seconds);
      },
      watched: ({ code, reason }) => watches.inc({ http_response_code: code, reason }),
    },
    observe: (given) => {
      sources = given;
    },
  };
}
