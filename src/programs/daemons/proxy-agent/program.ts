import { isIP } from "node:net";
import { TaskGroup } from "#base/async";
import { systemClock } from "#base/clock";
import type { FlagValues } from "#base/config";
import type { Estate } from "#base/estate";
import { Health } from "#base/health";
import { type HttpProxy, proxyFor } from "#base/http-proxy";
import { IpAddress } from "#base/ip";
import type { Logger } from "#base/log";
import { createRegistry, type Registry } from "#base/metrics";
import { type Names, SystemNames } from "#base/names";
import type { Worker } from "#base/workers";
import {
  type AgentLeaseMetrics,
  type AgentMetrics,
  BufferBudget,
  closeAgent,
  connectServer,
  drainAgent,
  forwardFilter,
  type LeaseCounter,
  loadKubernetes,
  ReverseListener,
  ServerAddresses,
  ServerSet,
} from "#features/tunnel";
import type { KubeClient } from "#kube/client";
import type { HostPort } from "#wire/http-connect";
import type { Capability } from "#wire/konnectivity";
import { FOLLOWED_SERVERS_NOTE } from "../../shared/api-server-flag/index.ts";
import { leaveEstate } from "../../shared/estate/index.ts";
import { restClientMetrics } from "../../shared/metrics/index.ts";
import { openFiles } from "../../shared/open-files/index.ts";
import { defineProgram, EXIT } from "../../shared/program/index.ts";
import {
  AGENT_UNREADY,
  klogLogger,
  leadWorkers,
  logIneffectiveFlags,
  muxOptions,
  ownWorker,
  partChecks,
  type ReadinessCheck,
  serveEndpoints,
} from "../../shared/tunnel/index.ts";
import { adminRoutes } from "./admin-routes.ts";
import { openBindInterface } from "./bind-interface.ts";
import { type AgentConfig, agentConfig } from "./config.ts";
import { proxyAgentEstate } from "./estate.ts";
import { type AgentFlags, agentFlags } from "./flags.ts";
import { ineffectiveAgentFlags } from "./ineffective-flags.ts";
import { agentMetrics } from "./metrics.ts";

type Values = FlagValues<AgentFlags>;

function agentEstate({ bindInterface: name, bindAddress, manageBindInterface }: Values): Estate {
  const addresses = manageBindInterface ? bindAddress.flatMap((text) => IpAddress.tryParse(text) ?? []) : [];
  return proxyAgentEstate({ name, addresses });
}

/** `proxy-agent` (docs/spec/tunnel.md). */
export const proxyAgent = defineProgram({
  name: "proxy-agent",
  summary:
    "The tunnel's agent on a node. Connects to proxy servers, and opens connections to endpoints near the node for them.",
  flags: agentFlags,
  metrics: [agentMetrics, restClientMetrics],
  estate: agentEstate,
  usageExit: EXIT.failed,
  secondSignal: "hurry",
  notes: [
    "Wire-compatible with Konnectivity's servers; flags and metrics are Konnectivity's.",
    "The first SIGTERM drains: servers send no new connections. A second SIGTERM ends the program. Certificates, CA and token are read for each connection.",
    "Konnectivity's metrics of Go's runtime (go_*) do not exist here; those of the process (process_*) and of Node (nodejs_*) do.",
    FOLLOWED_SERVERS_NOTE,
  ],
  run: ({ values, signal, hurry }) => {
    const worker = ownWorker();
    const config = agentConfig(values, worker);
    const log = klogLogger(worker === undefined ? "proxy-agent" : `proxy-agent.${worker.index}`, values);
    if (worker !== undefined) {
      const both = { signal: AbortSignal.any([signal, worker.signal]), hurry: AbortSignal.any([hurry, worker.hurry]) };
      return serve(values, config, { log, worker }, both);
    }
    for (const warning of config.warnings) log.warn(warning);
    logIneffectiveFlags(log, ineffectiveAgentFlags(values));
    leaveEstate("proxy-agent", agentEstate(values), { log });
    return config.workers > 1
      ? lead(values, config, log, { signal, hurry })
      : serve(values, config, { log, worker }, { signal, hurry });
  },
});

interface Signals {
  readonly signal: AbortSignal;
  readonly hurry: AbortSignal;
}

/** Leads `--workers` processes, each of which is an agent of its own for servers. */
async function lead(values: Values, config: AgentConfig, log: Logger, signals: Signals): Promise<number> {
  const health = new Health({ log });
  await using bound = await openBindInterface(values, config.reverse, { log, health });
  if (config.reverse !== undefined) await ReverseListener.claim(config.reverse);
  return await leadWorkers(
    {
      count: config.workers,
      // Without a flag the id is random: all workers have the leader's.
      env: { PROXY_AGENT_ID: config.agentID },
      descriptors: [],
      log,
      endpoints: { ...endpoints(values, config, createRegistry(), log), checks: () => partChecks(health) },
      tasks: bound === undefined ? [] : [(signal) => bound.watch({ signal })],
    },
    signals,
  );
}

function endpoints(values: Values, { health, admin }: AgentConfig, registry: Registry, log: Logger) {
  const routes = adminRoutes(values.enableProfiling, health.port);
  const { heapSnapshotSocket, metricsFrom, metricsAuthorization, kubeconfig, apiServer } = values;
  const authorization = metricsAuthorization ? { program: "proxy-agent", kubeconfig, apiServer } : undefined;
  return {
    registry,
    unready: AGENT_UNREADY,
    adminRoutes: () => routes,
    health,
    admin,
    metricsFrom,
    authorization,
    heapSnapshotSocket,
    log,
  };
}

/** Serves servers until the signal aborts and connections have ended. The leader of a worker has the bind interface. */
async function serve(
  values: Values,
  config: AgentConfig,
  { log, worker }: { readonly log: Logger; readonly worker: Worker | undefined },
  { signal, hurry }: Signals,
): Promise<number> {
  const registry = createRegistry();
  const health = new Health({ log });
  const budget = new BufferBudget(Math.floor(values.maxBufferedBytes / config.workers), {
    clock: systemClock,
    graceMs: values.slowConsumerGrace,
  });
  const { lease: leaseMetrics, observe, ...metrics } = agentMetrics(registry);
  observe({ budget });
  let group = new TaskGroup(signal);
  const onBug = (error: unknown): void => group.fail(error);
  await using client = await kubeClient(values, { registry, log });
  const api = client?.api;
  const leases = await leaseCounter(api, values, config, {
    log,
    health,
    metrics: leaseMetrics,
    onChange: () => servers.sync(),
  });
  const servers: ServerSet = serverSet(values, config, { log, metrics, budget, onBug, leases });
  await using bound =
    worker === undefined ? await openBindInterface(values, config.reverse, { log, health }) : undefined;
  await using reverse = await openReverse(values, config, servers, { log, metrics });
  const own = readinessChecks(servers, reverse);
  const checks = (): readonly ReadinessCheck[] => [...own, ...partChecks(health)];
  await using _endpoints = await serveEndpoints({ ...endpoints(values, config, registry, log), checks, onBug }, worker);

  group.spawn((aborted) => servers.run({ signal: aborted }));
  if (leases !== undefined) group.spawn((aborted) => leases.run({ signal: aborted }));
  if (bound !== undefined) group.spawn((aborted) => bound.watch({ signal: aborted }));
  worker?.started();
  // A URL that is none ends the program at once.
  const proxies = config.servers.flatMap((server) => proxyOf(server)?.name ?? []);
  log.info("started", {
    agentID: config.agentID,
    servers: config.servers,
    ...(proxies.length === 0 ? {} : { proxies }),
  });
  await group.wait();
  group = new TaskGroup();
  group.spawn(() => drainAgent(servers, { clock: systemClock, log }, { timeoutMs: values.drainTimeout, hurry }));
  await group.wait();
  await closeAgent(servers, { clock: systemClock });
  return EXIT.ok;
}

function serverSet(
  values: Values,
  config: AgentConfig,
  deps: {
    readonly log: Logger;
    readonly metrics: AgentMetrics;
    readonly budget: BufferBudget;
    readonly onBug: (error: unknown) => void;
    readonly leases: LeaseCounter | undefined;
  },
): ServerSet {
  const { leases, ...rest } = deps;
  const capabilities = capabilitiesOf(config);
  const names = new SystemNames({ clock: systemClock });
  const addresses = serverAddresses(values, config, { capabilities, names, budget: rest.budget });
  const allowed = forwardFilter(values.forwardAllowedDestination);
  return new ServerSet(
    {
      ...rest,
      clock: systemClock,
      names,
      connect: (options) => addresses.connect(options),
      ...(leases === undefined ? {} : { leases: () => leases.count }),
    },
    {
      syncIntervalMs: values.syncInterval,
      syncIntervalCapMs: values.syncIntervalCap,
      reconnectJitterMs: values.reconnectJitter,
      syncForever: values.syncForever,
      capabilities,
      countSource: values.serverCountSource === "max" ? "max" : "default",
      link: {
        mux: muxOptions(values),
        dialTimeoutMs: values.dialTimeout,
        closeLingerMs: values.closeLinger,
        ...(allowed === undefined ? {} : { allowed }),
      },
    },
  );
}

function capabilitiesOf(config: AgentConfig): ReadonlySet<Capability> {
  const always = ["half-close/1", "flow-control/1"] as const;
  return new Set(config.reverse === undefined ? always : [...always, "reverse/1" as const]);
}

/** Returns the proxy by HTTPS_PROXY and NO_PROXY, as grpc-go does. Throws `HttpProxyError`. */
function proxyOf({ host, port }: HostPort): HttpProxy | undefined {
  return proxyFor({ protocol: "https:", hostname: host, port }, process.env);
}

function serverAddresses(
  values: Values,
  config: AgentConfig,
  {
    capabilities,
    names,
    budget,
  }: { readonly capabilities: ReadonlySet<Capability>; readonly names: Names; readonly budget: BufferBudget },
): ServerAddresses {
  const orNone = (text: string): string | undefined => (text === "" ? undefined : text);
  return new ServerAddresses(
    {
      clock: systemClock,
      // A proxy resolves the name, as with grpc-go: here nobody may know it.
      resolve: async (host, options) =>
        config.servers.some((server) => server.host === host && proxyOf(server) !== undefined)
          ? [host]
          : (await names.resolve(host, options)).map(String),
      connect: (server, options) =>
        connectServer(
          server,
          {
            agentID: config.agentID,
            identifiers: values.agentIdentifiers,
            tokenFile: orNone(values.serviceAccountTokenPath),
            proxy: proxyOf({ host: server.name, port: server.port }),
            capabilities,
            timeoutMs: values.connectTimeout,
            keepAliveMs: values.keepaliveTime,
            dialTimeoutMs: values.dialTimeout,
            maxMessageBytes: values.maxRecvMessageSize,
            windows: budget.windows,
            clock: systemClock,
            tls: {
              caFile: orNone(values.caCert),
              certFile: orNone(values.agentCert),
              keyFile: orNone(values.agentKey),
              // The server name is the configured name, not the resolved address. If an address is configured, no SNI is sent.
              serverName: orNone(values.tlsServerName) ?? (isIP(server.name) === 0 ? server.name : undefined),
              alpn: values.alpnProto,
            },
          },
          options,
        ),
    },
    config.servers,
  );
}

async function kubeClient(
  values: Values,
  { registry, log }: { readonly registry: Registry; readonly log: Logger },
): Promise<(AsyncDisposable & { readonly api: KubeClient }) | undefined> {
  if (!values.countServerLeases) return undefined;
  const { followServers, openClient } = await import("../../shared/daemon/index.ts");
  await using opened = new AsyncDisposableStack();
  const { apiServer } = values;
  const kubeconfig = values.kubeconfig === "" ? undefined : values.kubeconfig;
  const api = opened.use(await openClient("proxy-agent", { kubeconfig, apiServer }, { registry, clock: systemClock }));
  opened.use(followServers("proxy-agent", [api], { log }));
  const all = opened.move();
  return { api, [Symbol.asyncDispose]: () => all.disposeAsync() };
}

async function leaseCounter(
  api: KubeClient | undefined,
  values: Values,
  config: AgentConfig,
  deps: {
    readonly log: Logger;
    readonly health: Health;
    readonly metrics: AgentLeaseMetrics;
    readonly onChange: () => void;
  },
): Promise<LeaseCounter | undefined> {
  if (api === undefined) return undefined;
  const { LeaseCounter } = await loadKubernetes();
  return new LeaseCounter(
    { api, clock: systemClock, ...deps, health: deps.health.part("leases") },
    { namespace: values.leaseNamespace, labelSelector: config.leaseSelector },
  );
}

async function openReverse(
  values: Values,
  { reverse, workers }: AgentConfig,
  servers: ServerSet,
  deps: { readonly log: Logger; readonly metrics: AgentMetrics },
): Promise<ReverseListener | undefined> {
  if (reverse === undefined) return undefined;
  // Dials of servers have the other half.
  const maxClients = openFiles().connections(2);
  const listener = await ReverseListener.open(
    { ...deps, clock: systemClock, links: () => servers.usable },
    {
      ...reverse,
      allowedSources: values.allowedSource,
      halfCloseTimeoutMs: values.halfCloseTimeout,
      closeLingerMs: values.closeLinger,
      isShared: workers > 1,
      maxClients,
    },
  );
  const { targets, bindAddresses } = reverse;
  deps.log.info("listening for connections to the control plane", {
    addresses: bindAddresses.map(String),
    targets: targets.map(({ localPort, address }) => `${localPort} -> ${address}`),
  });
  return listener;
}

function readinessChecks(servers: ServerSet, reverse: ReverseListener | undefined): readonly ReadinessCheck[] {
  const checks: ReadinessCheck[] = [
    { name: "ping", fault: () => undefined },
    { name: "server-connected", fault: () => (servers.isReady ? undefined : "no servers connected") },
  ];
  if (reverse === undefined) return checks;
  const fault = (): string | undefined =>
    reverse.hasServer
      ? undefined
      : "no connected server accepts connections from nodes: enable its feature gate EnableClusterToMasterTraffic";
  return [...checks, { name: "reverse-listener", fault }];
}
