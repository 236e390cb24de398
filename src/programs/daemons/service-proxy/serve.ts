import { TaskGroup } from "#base/async";
import { systemClock } from "#base/clock";
import type { IpFamily } from "#base/ip";
import type { Logger } from "#base/log";
import type { Registry } from "#base/metrics";
import { VERSION } from "#base/version";
import {
  type EventSink,
  HealthServer,
  healthMetrics,
  MetricsServer,
  NodeHealth,
  programMetrics,
  ServicePorts,
  serviceProxyMetrics,
  startingEvent,
} from "#features/service-health";
import { type ProxyKernel, supportedFamilies } from "#features/service-proxy";
import type { Monitors } from "#kernel/monitor";
import type { NetNs } from "#kernel/net";
import type { SockDiag } from "#kernel/sock-diag";
import type { KubeApi } from "#kube/client";
import { EventRecorder } from "#kube/events";
import { type Part, startParts } from "../../shared/daemon-kit/index.ts";
import { metricsLogin, profilingRoutes, serveHeapSnapshots } from "../../shared/http-endpoints/index.ts";
import { asideMetrics, type PassRecording, recordPasses } from "../../shared/pass-record/index.ts";
import {
  configzOf,
  type ServiceProxyConfig,
  type ServiceProxyValues,
} from "../../shared/service-proxy-config/index.ts";
import { watchConfig } from "./config-watch.ts";
import { eventSink } from "./events.ts";
import { NodeProxy, RESOURCES } from "./node-proxy.ts";
import { Readiness } from "./readiness.ts";
import { zpages } from "./zpages.ts";

/** Collaborators of {@link serve}. */
export interface ServeParts {
  readonly config: ServiceProxyConfig;
  /** The flags of the command line, for `/flagz`. */
  readonly flags: ServiceProxyValues;
  readonly kernel: ProxyKernel;
  readonly api: KubeApi;
  /** The API server by the kubeconfig. */
  readonly apiServer: URL;
  readonly sockets: SockDiag;
  readonly monitors: Monitors;
  readonly netns: NetNs;
  readonly registry: Registry;
  readonly log: Logger;
  /** Called once, when the tables of one family are in the kernel for the first time. */
  readonly onFirstSync?: (() => void) | undefined;
}

/** Serves until the signal aborts. Health endpoints answer at once; tables are written after the API's objects have been read. */
export async function serve(deps: ServeParts, signal: AbortSignal): Promise<void> {
  const { config, log } = deps;
  const group = new TaskGroup(signal);
  const onBug = (error: unknown): void => group.fail(error);
  const state = openState(deps, { signal, onBug });
  const { health, onEvent } = state;
  // Health endpoints answer 503 before the listeners close, also if a failure or a changed configuration ends the program.
  group.signal.addEventListener("abort", () => health.stopping(), { once: true });
  const endpoints = await endpointParts(deps, state);
  await using _snapshots = await serveHeapSnapshots({ log, onBug }, { path: config.heapSnapshotSocket });
  onEvent(startingEvent());
  health.started(state.families);
  const { source } = config;
  const watched: readonly Part[] =
    source === undefined
      ? []
      : [{ name: "config", run: ({ signal: at }) => watchConfig(source, { signal: at, log, clock: systemClock }) }];
  const work: readonly Part[] = [
    { name: "events", run: (at) => state.events.run(at) },
    { name: "ports", run: (at) => state.ports.run(at) },
    { name: "services", run: (at) => new NodeProxy({ ...deps, ...state }).run(at) },
  ];
  startParts([...endpoints, ...work, ...watched], group);
  await group.wait();
}

/** State that the endpoints and the proxy share. */
interface ServeState {
  readonly families: readonly IpFamily[];
  readonly metrics: ReturnType<typeof serviceProxyMetrics>;
  readonly health: NodeHealth;
  readonly readiness: Readiness;
  readonly events: EventRecorder;
  readonly onEvent: EventSink;
  readonly recording: PassRecording | undefined;
  readonly ports: ServicePorts;
  readonly listen: Omit<ConstructorParameters<typeof ServicePorts>[0], "health">;
}

function openState(
  deps: ServeParts,
  { signal, onBug }: { readonly signal: AbortSignal; readonly onBug: (error: unknown) => void },
): ServeState {
  const { config, kernel, registry, log } = deps;
  const families = supportedFamilies(kernel.stack);
  const health = new NodeHealth({
    healthTimeoutMs: 2 * config.syncMs,
    startup: config.startupHealth,
    drainsTerminatingNodes: config.gates.drainingTerminatingNodes,
    drainingTaintKeys: config.drainingTaintKeys,
    clock: systemClock,
  });
  const events = new EventRecorder(deps.api, {
    controller: "service-proxy",
    instance: config.nodeName,
    clock: systemClock,
  });
  const onEvent = eventSink(events, config.nodeName);
  const recording = recordPasses({ folder: config.recordDir, signal }, { events, log, clock: systemClock });
  asideMetrics(registry)(() => recording?.passes.aside ?? []);
  const listen = { netns: deps.netns, clock: systemClock, log, onBug, onEvent };
  const metrics = serviceProxyMetrics(registry);
  programMetrics(metrics, {
    version: VERSION,
    features: [
      { name: "KubeProxyDrainingTerminatingNodes", stage: "", isEnabled: config.gates.drainingTerminatingNodes },
      { name: "AllowServiceExternalIPs", stage: "", isEnabled: config.gates.allowServiceExternalIPs },
    ],
  });
  const readiness = new Readiness({ resources: RESOURCES, families });
  const ports = new ServicePorts({ ...listen, health });
  return { families, metrics, health, readiness, events, onEvent, recording, ports, listen };
}

/** The ports of health and of metrics, as far as they are configured. */
async function endpointParts(deps: ServeParts, state: ServeState): Promise<readonly Part[]> {
  const { config, registry, log } = deps;
  const { health, readiness, listen } = state;
  const onAnswer = healthMetrics(state.metrics, health);
  const { bindAddressHardFail: hardFail } = config;
  const parts: Part[] = [];
  if (config.healthz !== undefined) {
    const server = new HealthServer(
      { ...listen, health, onAnswer, readiness: readiness.health },
      { address: config.healthz, hardFail },
    );
    parts.push({ name: "healthz", run: (at) => server.run(at) });
  }
  if (config.metrics !== undefined) {
    const pages = zpages(deps.flags, { clock: systemClock });
    const debug = config.profiling ? profilingRoutes() : undefined;
    const authorize = await metricsLogin(config.metricsAuthorization, { api: deps.api, log });
    const server = new MetricsServer(
      { ...listen, registry, configz: () => configzOf(config), pages, debug },
      { address: config.metrics, metricsFrom: config.metricsFrom, authorize, hardFail },
    );
    parts.push({ name: "metrics", run: (at) => server.run(at) });
  }
  return parts;
}
