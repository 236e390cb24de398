/**
 * The tunnel between a control plane and its nodes, in both directions, wire-compatible with Konnectivity (spec tunnel).
 *
 * Owns: the links, the connections on them, how a server chooses agents and an agent finds servers. Refuses to know: flags,
 * Prometheus, Kubernetes; the programs `proxy-server` and `proxy-agent` put those around it.
 *
 * ```ts
 * const proxy = new ProxyServer({ log, metrics, onBug }, { serverID, serverCount: () => 1, strategies, capabilities });
 * proxy.serveAgents(createSecureServer(tls));
 * proxy.serveGrpcFrontends(createServer());
 * ```
 */
export { AgentLink, type AgentLinkDeps, type AgentLinkOptions } from "./agent/agent-link.ts";
export type { AgentMetrics, AgentSegment } from "./agent/metrics.ts";
export { type IncomingStream, type StreamPeer, serveStreams } from "./link/incoming.ts";
export { LinkError, type LinkErrorCode, type OpenedStream, openStream } from "./link/outgoing.ts";
export {
  MAX_MESSAGE_BYTES,
  type PacketStream,
  type PacketStreamHandlers,
  type StreamFault,
} from "./link/packet-stream.ts";
export { SESSION_MEMORY_MIB, SESSION_SETTINGS } from "./link/session.ts";
export { BufferBudget } from "./mux/budget.ts";
export { MUX_DEFAULTS, type MuxOptions } from "./mux/options.ts";
export { AgentAuthError, type AgentAuthErrorCode, type AgentAuthenticator } from "./server/agent-auth.ts";
export { type AllowedDestination, parseAllowedDestination } from "./server/allowed-destination.ts";
export type { DialFailureReason, Segment, ServerMetrics } from "./server/metrics.ts";
export { ProxyServer, type ProxyServerDeps, type ProxyServerOptions } from "./server/proxy-server.ts";
export { type ReverseLimits, ReversePolicy } from "./server/reverse-policy.ts";
export { parseStrategies, STRATEGIES, type Strategy } from "./server/strategies.ts";
