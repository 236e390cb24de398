import type { PacketTypeName } from "#wire/konnectivity";

/** `segment` of the agent's packet counters. */
export type AgentSegment = "from_agent" | "to_agent";

/** The agent's counters, implemented by the program with the metrics of docs/spec/tunnel.md#12. Times are seconds. */
export interface AgentMetrics {
  dialLatency(seconds: number): void;
  dialFailed(reason: "timeout" | "unknown"): void;
  endpointConnections(change: 1 | -1): void;
  serverConnections(count: number): void;
  knownServers(count: number): void;
  serverFailure(direction: "from_server" | "to_server"): void;
  packet(segment: AgentSegment, type: PacketTypeName | "UNKNOWN"): void;
  streamError(segment: AgentSegment, code: number, type: PacketTypeName | "Unknown"): void;
  reconnected(): void;
  reverseAccepted(target: string): void;
  reverseFailed(reason: "no_server" | "denied" | "dial" | "source" | "limit"): void;
  reverseConnections(change: 1 | -1): void;
  /** Changes the number of slow consumers that block a server's stream now. */
  fullReceiveChannels(change: number): void;
}
