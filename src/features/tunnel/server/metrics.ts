import type { PacketTypeName } from "#wire/konnectivity";

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

/** What the server counts; the program puts the metrics of docs/spec/tunnel.md#12 behind it. Seconds throughout. */
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
  /** `Connect`: slow consumers that hold an agent's stream up now; `Proxy`: frontends that are not read, for an agent takes nothing. */
  fullReceiveChannels(method: "Proxy" | "Connect", change: number): void;
  slowConsumerClosed(): void;
  reverseDial(result: ReverseDialResult): void;
  reverseConnections(change: 1 | -1): void;
}
