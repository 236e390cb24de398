/**
 * The tunnel between a control plane and its nodes, in both directions, wire-compatible with Konnectivity (docs/spec/tunnel.md).
 *
 * Owns: the links, the connections on them, how a server chooses agents and an agent finds servers. Refuses to know: flags and
 * Prometheus, which the programs `proxy-server` and `proxy-agent` add. The parts that use Kubernetes (tokens, Leases) are passed a
 * client.
 *
 * ```ts
 * const proxy = new ProxyServer({ log, metrics, onBug }, { serverID, serverCount: () => 1, strategies, capabilities });
 * proxy.serveAgents(createSecureServer(tls));
 * proxy.serveGrpcFrontends(createServer());
 * ```
 */

export { AgentLink, type AgentLinkDeps, type AgentLinkOptions } from "./agent/agent-link.ts";
export {
  type BindInterface,
  BindInterfaceError,
  type BindInterfaceErrorCode,
  DummyBindInterface,
  watchBindInterface,
} from "./agent/bind-interface.ts";
export { type AgentTls, type ConnectOptions, connectServer } from "./agent/connect-server.ts";
export { type ForwardDestination, forwardFilter, parseForwardDestination } from "./agent/forward-allow.ts";
export type { AgentMetrics, AgentSegment } from "./agent/metrics.ts";
export {
  ReverseListener,
  type ReverseListenerDeps,
  ReverseListenerError,
  type ReverseListenerErrorCode,
  type ReverseListenerOptions,
} from "./agent/reverse-listener.ts";
export { type ServerAddress, ServerAddresses, type ServerAddressesDeps } from "./agent/server-addresses.ts";
export { ServerSet, type ServerSetDeps, type ServerSetOptions } from "./agent/server-set.ts";
export { duplicateTargets, isPrivate, parseBindAddress, parseTarget, type Target } from "./agent/target.ts";
export type { TokenReviewAuthenticator, TokenReviewOptions } from "./auth/token-review.ts";
export type { LeaseCollector, LeaseCollectorDeps, LeaseCollectorOptions } from "./lease/lease-collector.ts";
export type { LeaseCounter, LeaseCounterDeps, LeaseCounterOptions } from "./lease/lease-counter.ts";
export type { AgentLeaseMetrics, LeaseRequest, ServerLeaseMetrics } from "./lease/metrics.ts";
export { leaseName, parseLabels } from "./lease/names.ts";
export type { ServerLease, ServerLeaseOptions } from "./lease/server-lease.ts";
export { acceptPathAuthority } from "./link/authority-shim.ts";
export { type IncomingStream, type StreamPeer, serveStreams } from "./link/incoming.ts";
export { LinkError, type LinkErrorCode, type OpenedStream, openStream } from "./link/outgoing.ts";
export {
  MAX_MESSAGE_BYTES,
  type PacketStream,
  type PacketStreamHandlers,
  type StreamFault,
} from "./link/packet-stream.ts";
export { SESSION_MEMORY_MIB, SESSION_SETTINGS } from "./link/session.ts";
export { serveSessions } from "./link/session-socket.ts";
export type { AddressFilter } from "./local/dial-tcp.ts";
export { BufferBudget } from "./mux/budget.ts";
export { MUX_DEFAULTS, type MuxOptions } from "./mux/options.ts";
export { AgentAuthError, type AgentAuthErrorCode, type AgentAuthenticator } from "./server/agent-auth.ts";
export { type AllowedDestination, parseAllowedDestination } from "./server/allowed-destination.ts";
export type { DialFailureReason, ReverseDialResult, Segment, ServerMetrics } from "./server/metrics.ts";
export { ProxyServer, type ProxyServerDeps, type ProxyServerOptions } from "./server/proxy-server.ts";
export { type ReverseLimits, ReversePolicy } from "./server/reverse-policy.ts";
export { parseStrategies, STRATEGIES, type Strategy } from "./server/strategies.ts";
export { isOldTls, opensslCiphers, parseTlsVersion } from "./tls/cipher-suites.ts";
export { type ServerTls, type ServerTlsOptions, serverTls } from "./tls/server-tls.ts";
export { TlsFilesError, type TlsFilesErrorCode, type TlsPaths } from "./tls/tls-files.ts";

/** The parts that use Kubernetes, loaded on demand: the client is more code than the rest of the tunnel. */
export function loadKubernetes(): Promise<typeof import("./kubernetes.ts")> {
  return import("./kubernetes.ts");
}
