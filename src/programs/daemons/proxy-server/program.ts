import { TaskGroup, untilAborted } from "#base/async";
import { systemClock } from "#base/clock";
import type { FlagValues } from "#base/config";
import { describeError, ExpectedError } from "#base/errors";
import { Health } from "#base/health";
import type { Logger } from "#base/log";
import { createRegistry, type Registry } from "#base/metrics";
import { SystemNames } from "#base/names";
import type { Worker } from "#base/workers";
import {
  Agentless,
  drainServer,
  isOldTls,
  listenForAgents,
  listenForFrontends,
  loadKubernetes,
  openShared,
  ProxyServer,
  parseTlsVersion,
  ReversePolicy,
  readDestinations,
  type ServerLease,
  type ServerLeaseMetrics,
  Succession,
  type TokenReviewAuthenticator,
} from "#features/tunnel";
import type { KubeClient } from "#kube/client";
import type { InformerHealth } from "#kube/informer";
import type { HttpRoutes } from "#wire/http-endpoint";
import { FOLLOWED_SERVERS_NOTE } from "../../shared/api-server-flag/index.ts";
import { balancersOf } from "../../shared/balancers/index.ts";
import { profilingRoutes } from "../../shared/http-endpoints/index.ts";
import { restClientMetrics } from "../../shared/metrics/index.ts";
import { openFiles } from "../../shared/open-files/index.ts";
import { defineProgram, EXIT } from "../../shared/program/index.ts";
import {
  klogLogger,
  leadWorkers,
  logIneffectiveFlags,
  muxOptions,
  ownWorker,
  partChecks,
  type ReadinessCheck,
  SERVER_UNREADY,
  serveEndpoints,
} from "../../shared/tunnel/index.ts";
import { type AgentIdentity, agentIdentity } from "./agent-identity.ts";
import { type ServerConfig, serverConfig } from "./config.ts";
import { type ServerFlags, serverFlags } from "./flags.ts";
import { FrontendShare } from "./frontend-share.ts";
import { ineffectiveServerFlags } from "./ineffective-flags.ts";
import { KubeClients, type RateLimit, rateLimitOf } from "./kube-clients.ts";
import { serverMetrics } from "./metrics.ts";
import { ProbeTurns } from "./probe-turns.ts";
import { SighupHandler } from "./sighup-handler.ts";

type Values = FlagValues<ServerFlags>;

/** Time limit for the deletion of the Lease when the server ends, in milliseconds. */
const LEASE_REMOVAL_MS = 5000;

/** `proxy-server` (docs/spec/tunnel.md). */
export const proxyServer = defineProgram({
  name: "proxy-server",
  summary: "The control plane's end of the tunnel: frontends such as the API server reach nodes through agents.",
  flags: serverFlags,
  metrics: [serverMetrics, restClientMetrics],
  usageExit: EXIT.failed,
  secondSignal: EXIT.failed,
  notes: [
    "Wire-compatible with Konnectivity's agents and kube-apiserver's egress selector; flags and metrics are Konnectivity's.",
    "At SIGHUP --allowed-destination-file is read again. Certificate files are read again when they change.",
    "Konnectivity's metrics of Go's runtime (go_*) do not exist here; those of the process (process_*) and of Node (nodejs_*) do.",
    FOLLOWED_SERVERS_NOTE,
  ],
  run: async ({ values, signal, hurry }) => {
    // The handler is set before everything else, because SIGHUP without a handler ends the process.
    using sighup = new SighupHandler();
    const worker = ownWorker();
    const config = serverConfig(values, worker);
    const log = klogLogger(worker === undefined ? "proxy-server" : `proxy-server.${worker.index}`, values);
    // A leader reads the rules too, so that their faults are its own.
    const { isBalancer } = balancersOf(values);
    const identity = await agentIdentity(config, { log, clock: systemClock, isBalancer });
    if (worker === undefined) {
      warn(values, config, log);
      logIneffectiveFlags(log, ineffectiveServerFlags(values));
      if (config.workers > 1) return await lead(values, config, { log, sighup }, { signal, hurry });
    }
    return await serve(
      values,
      config,
      { log, sighup, worker, identity },
      worker === undefined ? signal : AbortSignal.any([signal, worker.signal]),
    );
  },
});

/** Leads `--workers` processes, each of which is a server of its own for agents. */
async function lead(
  values: Values,
  config: ServerConfig,
  { log, sighup }: { readonly log: Logger; readonly sighup: SighupHandler },
  signals: { readonly signal: AbortSignal; readonly hurry: AbortSignal },
): Promise<number> {
  const { frontend } = config;
  if (frontend.kind === "shared-uds") throw new Error("a leader has no leader");
  using shared = await openShared(frontend, config.agent);
  const registry = createRegistry();
  // The socket's file is not watched: a probe asks for it.
  const checks = (): readonly ReadinessCheck[] =>
    frontend.kind === "uds" ? [{ name: "frontends", fault: () => shared.fault() }] : [];
  return await leadWorkers(
    {
      count: config.workers,
      // Without a flag the id is random: all workers have the leader's.
      env: { PROXY_SERVER_ID: config.serverID },
      descriptors: shared.descriptors,
      log,
      endpoints: { ...endpoints(values, config, registry, log), checks },
      onReload: (handler) => sighup.handle(handler),
      tasks: [(at, workers) => shared.keep((fd) => workers.pass(fd), { signal: at, log, clock: systemClock })],
    },
    signals,
  );
}

function endpoints(values: Values, { health, admin }: ServerConfig, registry: Registry, log: Logger) {
  const adminRoutes = (metrics: HttpRoutes[string]): HttpRoutes => ({
    "/metrics": metrics,
    ...(values.enableProfiling ? profilingRoutes() : {}),
  });
  const { heapSnapshotSocket, metricsFrom, metricsAuthorization, kubeconfig, apiServer } = values;
  const authorization = metricsAuthorization ? { program: "proxy-server", kubeconfig, apiServer } : undefined;
  const clients = { metricsFrom, authorization };
  const isShared = values.takeOver;
  return {
    registry,
    unready: SERVER_UNREADY,
    adminRoutes,
    health,
    admin,
    isShared,
    ...clients,
    heapSnapshotSocket,
    log,
  };
}

/** Serves agents and frontends until the signal aborts and connections have ended. */
async function serve(
  values: Values,
  config: ServerConfig,
  {
    log,
    sighup,
    worker,
    identity,
  }: {
    readonly log: Logger;
    readonly sighup: SighupHandler;
    readonly worker: Worker | undefined;
    readonly identity: AgentIdentity | undefined;
  },
  signal: AbortSignal,
): Promise<number> {
  const registry = createRegistry();
  const health = new Health({ log });
  const { lease: leaseMetrics, observe, ...metrics } = serverMetrics(registry);
  let group = new TaskGroup(signal);
  const onBug = (error: unknown): void => group.fail(error);
  const rateLimit = rateLimitOf(values);
  await using api = await KubeClients.open(
    {
      reviews: config.tokens !== undefined,
      leases: config.lease !== undefined,
      nodes: identity?.nodes !== undefined,
    },
    { kubeconfig: values.kubeconfig, apiServer: values.apiServer, rateLimit },
    { registry, log },
  );
  const reverse = reversePolicy(values, config, { log, metrics });
  const tokens = await tokenReview(api.reviews, config, rateLimit);
  let share: FrontendShare | undefined;
  let stopping = false;
  const succession = values.takeOver ? new Succession(values.udsName) : undefined;
  const options = proxyOptions(values, config);
  const agentless = new Agentless(
    { clock: systemClock, log, shouldHaveAgents: () => !stopping && succession?.isBehind !== true },
    options,
  );
  const proxy = new ProxyServer(
    {
      clock: systemClock,
      log,
      metrics,
      onBug,
      reverse,
      authenticator: tokens,
      gate: identity?.gate,
      onBackendsChange: () => {
        agentless.update(proxy.backends.isEmpty);
        share?.update();
      },
    },
    options,
  );
  agentless.update(true);
  const whyNoAgents = (): string | undefined => {
    if (stopping) return "shutting down";
    // The server before this one has the agents, and serves.
    return proxy.backends.isReady || succession?.isBehind === true ? undefined : "no connection to any proxy agent";
  };
  const checks = (): readonly ReadinessCheck[] => [{ name: "agents", fault: whyNoAgents }, ...partChecks(health)];
  const files = openFiles();
  const newcomers = { max: files.newcomers, ...balancersOf(values) };
  const tls = { cipherSuites: values.cipherSuites, tlsMinVersion: values.tlsMinVersion, newcomers };
  await using probes = new AsyncDisposableStack();
  const openProbes = (): Promise<AsyncDisposable> =>
    serveEndpoints({ ...endpoints(values, config, registry, log), checks, onBug }, worker);
  probes.use(
    succession === undefined
      ? await openProbes()
      : await ProbeTurns.open({ open: openProbes, succession, log, clock: systemClock, onBug }),
  );
  await using agents = await listenForAgents({ proxy, log, clock: systemClock, onBug }, config.agent, tls);
  observe({
    backends: proxy.backends,
    budget: proxy.budget,
    agentBytes: () => agents.bytes,
    identities: identity === undefined ? undefined : () => identity.gate.streams,
  });
  await using frontends = await listenForFrontends(
    {
      proxy,
      log,
      clock: systemClock,
      onBug,
      onShortage: () => share?.noteShortage(),
      onListener: worker?.onListener,
      succession,
      ...(config.frontend.kind === "uds" ? { health: health.part("frontends", { needed: "always" }) } : {}),
    },
    config.frontend,
    { mode: values.mode, ...tls },
  );
  if (worker !== undefined) {
    share = new FrontendShare({ worker, backends: proxy.backends, frontends, clock: systemClock });
  }

  group.spawn((aborted) => untilAborted(aborted));
  followIdentity(group, identity, { api: api.nodes, health });
  const lease = await startLease(group, { api: api.leases, config, log, health, metrics: leaseMetrics });
  if (tokens !== undefined) {
    const part = health.part("token-review");
    group.spawn((aborted) => tokens.checkApi(part, { signal: aborted }));
  }
  const reload = (): void => reloadDestinations(values, reverse, log);
  if (worker === undefined) sighup.handle(reload);
  else worker.onReload(reload);
  worker?.started();
  log.info("started", { serverID: config.serverID, mode: values.mode, strategies: config.strategies });
  await group.wait();
  stopping = true;
  log.info("shutting down", { graceMs: values.gracefulShutdownTimeout });
  // The Lease is removed first, because agents must no longer count this server.
  await lease?.remove({ signal: AbortSignal.timeout(LEASE_REMOVAL_MS) });
  if (values.gracefulShutdownTimeout > 0) {
    group = new TaskGroup();
    const successor = succession?.isBehind === true ? undefined : succession;
    const onSuperseded = (): Promise<void> => probes.disposeAsync();
    const parts = { proxy, reverse, log, clock: systemClock, frontends, agents, successor, onSuperseded };
    group.spawn(() => drainServer(parts, { timeoutMs: values.gracefulShutdownTimeout }));
    await group.wait();
  }
  return EXIT.ok;
}

function warn(values: Values, config: ServerConfig, log: Logger): void {
  if (values.warnOnChannelLimit) log.info("--warn-on-channel-limit is deprecated and has no effect");
  if (isOldTls(parseTlsVersion(values.tlsMinVersion))) {
    log.warn("TLS versions before 1.2 are not secure", { "tls-min-version": values.tlsMinVersion });
  }
  if (config.agent.tls.clientCa === undefined && config.tokens === undefined) {
    log.warn("agents are not authenticated: every client that reaches the agent port is accepted as an agent");
  }
}

function proxyOptions(values: Values, config: ServerConfig): ConstructorParameters<typeof ProxyServer>[1] {
  const capabilities = ["half-close/1", "flow-control/1"] as const;
  return {
    serverID: config.serverID,
    serverCount: () => Math.max(1, values.serverCount) * config.workers,
    strategies: config.strategies,
    capabilities: new Set(config.destinations === undefined ? capabilities : [...capabilities, "reverse/1" as const]),
    mux: muxOptions(values),
    maxBufferedBytes: Math.floor(values.maxBufferedBytes / config.workers),
    maxMessageBytes: values.maxRecvMessageSize,
    backendDialTimeoutMs: values.backendDialTimeout,
    halfCloseTimeoutMs: values.halfCloseTimeout,
    closeLingerMs: values.closeLinger,
    keepAliveMs: values.keepaliveTime,
    frontendKeepAliveMs: values.frontendKeepaliveTime,
    agentAcceptRate: values.agentAcceptRate === 0 ? undefined : values.agentAcceptRate,
  };
}

function reversePolicy(
  values: Values,
  { destinations }: ServerConfig,
  deps: { readonly log: Logger; readonly metrics: ConstructorParameters<typeof ReversePolicy>[0]["metrics"] },
): ReversePolicy | undefined {
  if (destinations === undefined) return undefined;
  const policy = new ReversePolicy(
    { clock: systemClock, names: new SystemNames({ clock: systemClock }), ...deps },
    {
      destinations,
      limits: {
        maxConnections: values.reverseMaxConnections,
        dialRate: values.reverseDialRate,
        dialTimeoutMs: values.reverseDialTimeout,
      },
    },
  );
  deps.log.info("agents may open connections through this server", { destinations: policy.describe() });
  return policy;
}

/** Reads the file of destinations again. If the file cannot be used, logs the fault and keeps the earlier destinations. */
function reloadDestinations(values: Values, reverse: ReversePolicy | undefined, log: Logger): void {
  const { allowedDestinationFile: path, allowedDestination } = values;
  if (reverse === undefined || path === "") {
    log.info("SIGHUP has no effect: --allowed-destination-file is not set");
    return;
  }
  try {
    reverse.replace([...allowedDestination, ...readDestinations(path)]);
    log.info("destinations reloaded", { file: path, destinations: reverse.describe() });
  } catch (error) {
    // An error of the file system, or about the contents.
    if (!(error instanceof ExpectedError || (error instanceof Error && "syscall" in error))) throw error;
    log.error("the file of allowed destinations cannot be used; the old destinations stay in force", {
      file: path,
      reason: describeError(error),
    });
  }
}

/** Follows the files of the rules, and the Nodes that they are about. */
function followIdentity(
  group: TaskGroup,
  identity: AgentIdentity | undefined,
  { api, health }: { readonly api: KubeClient | undefined; readonly health: Health },
): void {
  if (identity === undefined) return;
  const { nodes } = identity;
  group.spawn((signal) => identity.follow({ signal }));
  if (nodes === undefined || api === undefined) return;
  const part = health.part("watch-nodes");
  const onHealth = (state: InformerHealth): void => (state.state === "ready" ? part.ok() : part.degraded(state.error));
  group.spawn((signal) => nodes.run({ api, onHealth }, { signal }));
}

async function tokenReview(
  api: KubeClient | undefined,
  { tokens }: ServerConfig,
  rateLimit: RateLimit | undefined,
): Promise<TokenReviewAuthenticator | undefined> {
  if (tokens === undefined || api === undefined) return undefined;
  const { TokenReviewAuthenticator } = await loadKubernetes();
  return new TokenReviewAuthenticator({ api, clock: systemClock }, { ...tokens, rateLimit });
}

async function startLease(
  group: TaskGroup,
  parts: {
    readonly api: KubeClient | undefined;
    readonly config: ServerConfig;
    readonly log: Logger;
    readonly health: Health;
    readonly metrics: ServerLeaseMetrics;
  },
): Promise<ServerLease | undefined> {
  const { api, config, metrics } = parts;
  if (api === undefined || config.lease === undefined) return undefined;
  const { LeaseCollector, ServerLease } = await loadKubernetes();
  const log = parts.log.child("lease");
  const options = { serverID: config.serverID, ...config.lease };
  const lease = new ServerLease({ api, clock: systemClock, log, health: parts.health.part("lease") }, options);
  group.spawn((signal) => lease.run({ signal }));
  const collector = new LeaseCollector({ api, clock: systemClock, log, metrics }, options);
  group.spawn((signal) => collector.run({ signal }));
  return lease;
}
