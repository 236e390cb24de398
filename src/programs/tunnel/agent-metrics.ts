import { Gauge, type Registry } from "#base/metrics";
import type { AgentLeaseMetrics, AgentMetrics, BufferBudget } from "#features/tunnel";
import { codeName } from "../grpc-code-names.ts";
import { buildInfo, maker, PREFIX } from "./metrics.ts";

/** Konnectivity's buckets, seconds (docs/spec/tunnel.md#12). */
const LATENCY_BUCKETS = [0.005, 0.025, 0.1, 0.5, 2.5, 10, 30];

/** Declares all metrics of the agent, under Konnectivity's names. */
export function agentMetrics(
  registry: Registry,
  budget: Pick<BufferBudget, "used">,
): AgentMetrics & { readonly lease: AgentLeaseMetrics } {
  const make = maker(registry, "agent");
  const dials = make.histogram("dial_duration_seconds", "Latency of dialing endpoints, seconds.", LATENCY_BUCKETS);
  const failures = make.counter("endpoint_dial_failure_total", "Number of failed dials, by reason.", ["reason"], {
    reason: ["timeout", "unknown"],
  });
  const serverFailures = make.counter(
    "server_connection_failure_count",
    "Failures of the connection to a proxy server. Deprecated: see stream_errors_total.",
    ["direction"],
    { direction: ["from_server", "to_server"] },
  );
  const servers = make.gauge("open_server_connections", "Current number of open streams to proxy servers.");
  const endpoints = make.gauge("open_endpoint_connections", "Current number of open connections to endpoints.");
  const known = make.gauge("known_server_count", "Current number of proxy servers that there are said to be.");
  const packets = make.counter("stream_packets_total", "Packets that were processed.", ["segment", "packet_type"]);
  const errors = make.counter("stream_errors_total", "gRPC errors of streams.", ["segment", "code", "packet_type"]);
  const full = make.gauge("full_receive_channels", "Consumers that hold up a stream now.");
  const accepted = make.counter("reverse_accepted_total", "Connections to the bind addresses.", ["target"]);
  const reverseFailures = make.counter("reverse_failures_total", "Those that came to nothing.", ["reason"], {
    reason: ["no_server", "denied", "dial", "source"],
  });
  const reverse = make.gauge("reverse_connections", "Current number of connections to the control plane's side.");
  const reconnects = make.counter("reconnects_total", "Connection attempts that followed a lost stream.");
  new Gauge({
    name: `${PREFIX}agent_buffered_bytes`,
    help: "Bytes of all connections that wait to be sent.",
    registers: [registry],
    collect() {
      this.set(budget.used);
    },
  });
  buildInfo(registry, "agent");
  return {
    dialLatency: (seconds) => dials.observe(seconds),
    dialFailed: (reason) => failures.inc({ reason }),
    endpointConnections: (change) => endpoints.inc(change),
    serverConnections: (count) => servers.set(count),
    knownServers: (count) => known.set(count),
    serverFailure: (direction) => serverFailures.inc({ direction }),
    packet: (segment, type) => packets.inc({ segment, packet_type: type }),
    streamError: (segment, code, type) => errors.inc({ segment, code: codeName(code), packet_type: type }),
    reconnected: () => reconnects.inc(),
    reverseAccepted: (target) => accepted.inc({ target }),
    reverseFailed: (reason) => reverseFailures.inc({ reason }),
    reverseConnections: (change) => reverse.inc(change),
    fullReceiveChannels: (change) => full.inc(change),
    lease: leaseMetrics(registry),
  };
}

function leaseMetrics(registry: Registry): AgentLeaseMetrics {
  const make = maker(registry, "agent");
  const labels = ["http_response_code", "reason"];
  const lists = make.counter("lease_lists_total", "Lists of Leases.", labels);
  const watches = make.counter("lease_watches_total", "Watches of Leases.", labels);
  const latency = make.histogram("lease_list_latency_seconds", "Latency of listing Leases.", LATENCY_BUCKETS, [
    "http_response_code",
  ]);
  return {
    listed: ({ code, reason, seconds }) => {
      lists.inc({ http_response_code: code, reason });
      latency.observe({ http_response_code: code }, seconds);
    },
    watched: ({ code, reason }) => watches.inc({ http_response_code: code, reason }),
  };
}
