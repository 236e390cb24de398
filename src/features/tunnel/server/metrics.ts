import type { PacketTypeName } from "#wire/konnectivity";
import type { AgentRefusalReason } from "../identity/agent-gate.ts";
import type { CertificateFault } from "../tls/client-fault.ts";

/** `reason` of `dial_failure_count` (docs/spec/tunnel.md#12). */
export type DialFailureReason =
  | "no_agent"
  | "error_response"
  | "unrecognized_response"
  | "send_rsp"
  | "backend_close"
  | "backend_dial_timeout"
  | "frontend_close";

/** `result` of `reverse_dials_total`. */
export type ReverseDialResult = "ok" | "denied" | "limited" | "stopping" | "dial_error" | "disabled";

/** `segment` of the packet counters. */
export type Segment = "from_client" | "to_client" | "from_agent" | "to_agent";

/** The kind of the port: `listener` of `connections_refused_total` (docs/spec/tunnel.md#12). */
export type RefusingListener = "agents" | "frontends";

/** `reason` of `connections_refused_total`. `unused`: no stream was accepted on it in time. */
export type ConnectionRefusal = CertificateFault | "tls" | "alpn" | "http2" | "unused";

/** The server's counters, implemented by the program with the metrics of docs/spec/tunnel.md#12. Times are seconds. */
export interface ServerMetrics {
  dialFailed(reason: DialFailureReason): void;
  dialLatency(seconds: number): void;
  connectionDuration(seconds: number): void;
  pendingDials(change: 1 | -1): void;
  established(change: 1 | -1): void;
  packet(segment: Segment, type: PacketTypeName | "UNKNOWN"): void;
  streamError(segment: Segment, code: number, type: PacketTypeName | "Unknown"): void;
  frontendWrite(seconds: number): void;
  grpcConnections(method: "Proxy" | "Connect", change: 1 | -1): void;
  httpConnections(change: 1 | -1): void;
  /**
   * Changes a gauge. `Connect`: the number of slow consumers that block an agent's stream now. `Proxy`: the number of frontends that are
   * paused, because their agent takes no bytes.
   */
  fullReceiveChannels(method: "Proxy" | "Connect", change: number): void;
  slowConsumerClosed(): void;
  reverseDial(result: ReverseDialResult): void;
  reverseConnections(change: 1 | -1): void;
  /** The rules of `--agent-identity` have refused an agent, or ended a stream of one. */
  agentRefused(reason: AgentRefusalReason): void;
  /** A connection ended for a fault of its peer: in TLS, in HTTP/2, or because it asked for nothing. */
  connectionRefused(listener: RefusingListener, reason: ConnectionRefusal): void;
}
