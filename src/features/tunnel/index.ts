/**
 * The tunnel between a control plane and its nodes, in both directions, wire-compatible with Konnectivity (docs/spec/tunnel.md).
 *
 * Owns: the links, the connections on them, how a server chooses agents and an agent finds servers. Does not know: flags and
 * Prometheus, which the programs `proxy-server` and `proxy-agent` add. The parts that use Kubernetes (tokens, Leases) are passed a
 * client.
 *
 * ```ts
 * const proxy = new ProxyServer({ clock, log, metrics, onBug }, { serverID, serverCount: () => 1, strategies, capabilities });
 * await using agents = await listenForAgents({ proxy, log }, { address, tls: { cert, key, clientCa } }, tlsOptions);
 * await using frontends = await listenForFrontends({ proxy, log }, { kind: "uds", path, deleteExisting: true }, { mode: "grpc", ...tlsOptions });
 * ```
 */

export { DummyBindInterface, watchBindInterface } from "./agent/bind-interface.ts";
export { BIND_ALIAS } from "./agent/bind-plan.ts";
export { connectServer } from "./agent/connect-server.ts";
export { closeAgent, drainAgent } from "./agent/drain.ts";
export { bindEstate } from "./agent/estate.ts";
export { forwardFilter, parseForwardDestination } from "./agent/forward-allow.ts";
export type { AgentMetrics } from "./agent/metrics.ts";
export { ReverseListener } from "./agent/reverse-listener.ts";
export { ServerAddresses } from "./agent/server-addresses.ts";
export { ServerSet } from "./agent/server-set.ts";
export { duplicateTargets, isPrivate, parseBindAddress, parseTarget, type Target } from "./agent/target.ts";
export type { TokenReviewAuthenticator } from "./auth/token-review.ts";
export type { AgentRefusalReason, IdentityLimits } from "./identity/agent-gate.ts";
export type { NodeBook } from "./identity/node-book.ts";
export type { LeaseCounter } from "./lease/lease-counter.ts";
export type { AgentLeaseMetrics, ServerLeaseMetrics } from "./lease/metrics.ts";
export { leaseName, parseLabels } from "./lease/names.ts";
export type { ServerLease } from "./lease/server-lease.ts";
export { BufferBudget } from "./mux/budget.ts";
export { MUX_DEFAULTS, type MuxOptions } from "./mux/options.ts";
export { Agentless } from "./server/agentless.ts";
export { type AllowedDestination, parseAllowedDestination, readDestinations } from "./server/allowed-destination.ts";
export { drainServer } from "./server/drain.ts";
export { type AgentListen, type FrontendListen, listenForAgents, listenForFrontends } from "./server/listeners.ts";
export type { ConnectionRefusal, DialFailureReason, ReverseDialResult, ServerMetrics } from "./server/metrics.ts";
export { ProxyServer } from "./server/proxy-server.ts";
export { ReversePolicy } from "./server/reverse-policy.ts";
export { openShared } from "./server/shared-frontends.ts";
export { parseStrategies, type Strategy } from "./server/strategies.ts";
export { Succession, waitingPathOf } from "./server/succession.ts";
export { isOldTls, opensslCiphers, parseTlsVersion } from "./tls/cipher-suites.ts";

/** The parts that use Kubernetes, loaded on demand: the client is more code than the rest of the tunnel. */
export function loadKubernetes(): Promise<typeof import("./kubernetes.ts")> {
  return import("./kubernetes.ts");
}

/** The rules of `--agent-identity`, loaded on demand with the reader of their files. */
export function loadRules(): Promise<typeof import("./rules.ts")> {
  return import("./rules.ts");
}
