import { Dirty, TaskGroup } from "#base/async";
import { systemClock } from "#base/clock";
import type { Cidr, IpFamily } from "#base/ip";
import type { Logger } from "#base/log";
import type { Registry } from "#base/metrics";
import { VERSION } from "#base/version";
import {
  type EventSink,
  HealthServer,
  healthMetrics,
  lacksHealthPort,
  MetricsServer,
  NodeHealth,
  nodeView,
  programMetrics,
  ServicePorts,
  SyncMetrics,
  serviceProxyMetrics,
  startingEvent,
  WatchMetrics,
} from "#features/service-health";
import {
  AffinityFill,
  DriftWatch,
  type FamilyProxy,
  keepKnown,
  LocalNodePorts,
  localNodePorts,
  NodeAwareProxy,
  nodeNetwork,
  OtherNodesReader,
  type ProxyKernel,
  type ServiceSteps,
  serviceWarnings,
  supportedFamilies,
  unknownNode,
  watchInputs,
} from "#features/service-proxy";
import type { Monitors } from "#kernel/monitor";
import type { NetNs } from "#kernel/net";
import { openNftWriters } from "#kernel/nft-elements";
import type { SockDiag } from "#kernel/sock-diag";
import {
  isAway,
  KUBE_CONFIG_ERROR_CODES,
  KUBE_ERROR_CODES,
  type KubeApi,
  type KubeObject,
  type Node,
  parseObjectKey,
  type ResourceType,
} from "#kube/client";
import { EventRecorder } from "#kube/events";
import type { InformerHealth } from "#kube/informer";
import { metricsLogin, profilingRoutes, serveHeapSnapshots } from "../../shared/http-endpoints/index.ts";
import { asideMetrics, type PassRecording, type RecordedWork, recordPasses } from "../../shared/pass-record/index.ts";
import {
  configzOf,
  type ServiceProxyConfig,
  type ServiceProxyValues,
} from "../../shared/service-proxy-config/index.ts";
import { addressGuard, findApiServer, namedAddresses } from "./address-guard.ts";
import { areAdopted } from "./adopted.ts";
import { watchConfig } from "./config-watch.ts";
import { eventSink } from "./events.ts";
import { followAddresses } from "./host-addresses.ts";
import { Readiness } from "./readiness.ts";
import { SmallHeap } from "./small-heap.ts";
import { healthCheckedServices, syncObserver } from "./sync-observer.ts";
import { FamilyCheck } from "./wrong-family.ts";
import { zpages } from "./zpages.ts";

const RESOURCES = ["services", "endpointslices", "nodes", "servicecidrs"] as const;

/** Collaborators of {@link serve}. */
export interface ServeParts {
  readonly config: ServiceProxyConfig;
  /** Of the command line, for `/flagz`. */
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
  const group = new TaskGroup(signal);
  const onBug = (error: unknown): void => group.spawn(() => Promise.reject(error));
  // Health endpoints answer 503 before the listeners close, also if a failure or a changed configuration ends the program.
  group.signal.addEventListener("abort", () => health.stopping(), { once: true });
  const listen = { netns: deps.netns, clock: systemClock, log, onBug, onEvent };
  const metrics = serviceProxyMetrics(registry);
  programMetrics(metrics, {
    version: VERSION,
    features: [
      { name: "KubeProxyDrainingTerminatingNodes", stage: "", isEnabled: config.gates.drainingTerminatingNodes },
      { name: "AllowServiceExternalIPs", stage: "", isEnabled: config.gates.allowServiceExternalIPs },
    ],
  });
  const onAnswer = healthMetrics(metrics, health);
  const readiness = new Readiness({ resources: RESOURCES, families });
  const { bindAddressHardFail: hardFail } = config;
  if (config.healthz !== undefined) {
    const server = new HealthServer(
      { ...listen, health, onAnswer, readiness: readiness.health },
      { address: config.healthz, hardFail },
    );
    group.spawn((at) => server.run({ signal: at }));
  }
  if (config.metrics !== undefined) {
    const pages = zpages(deps.flags, { clock: systemClock });
    const debug = config.profiling ? profilingRoutes() : undefined;
    const authorize = await metricsLogin(config.metricsAuthorization, { api: deps.api, log });
    const server = new MetricsServer(
      { ...listen, registry, configz: () => configzOf(config), pages, debug },
      { address: config.metrics, metricsFrom: config.metricsFrom, authorize, hardFail },
    );
    group.spawn((at) => server.run({ signal: at }));
  }
  await using _snapshots = await serveHeapSnapshots({ log, onBug }, { path: config.heapSnapshotSocket });
  const ports = new ServicePorts({ ...listen, health });
  group.spawn((at) => events.run({ signal: at }));
  group.spawn((at) => ports.run({ signal: at }));
  onEvent(startingEvent());
  health.started(families);
  group.spawn((at) => proxyServices({ ...deps, metrics, families, health, readiness, ports, onEvent, recording }, at));
  const { source } = config;
  if (source !== undefined) group.spawn((at) => watchConfig(source, { signal: at, log, clock: systemClock }));
  await group.wait();
}

interface ProxyParts extends ServeParts {
  readonly metrics: ReturnType<typeof serviceProxyMetrics>;
  readonly families: readonly IpFamily[];
  readonly health: NodeHealth;
  readonly readiness: Readiness;
  readonly ports: ServicePorts;
  readonly onEvent: EventSink;
  readonly recording: PassRecording | undefined;
}

async function proxyServices(deps: ProxyParts, signal: AbortSignal): Promise<void> {
  const { config, kernel, api, monitors, netns, metrics, log, health, ports, recording } = deps;
  const watches = new WatchMetrics(metrics, {
    resources: RESOURCES,
    reasons: [...new Set([...KUBE_ERROR_CODES, ...KUBE_CONFIG_ERROR_CODES])],
  });
  const syncs = new SyncMetrics(metrics, { families: deps.families, clock: systemClock });
  let node = unknownNode(config.bindAddress);
  let { onFirstSync } = deps;
  const proxyOf = (family: IpFamily): FamilyProxy | undefined => proxies.find((one) => one.family === family);
  const observer = syncObserver({
    syncs,
    health,
    readiness: deps.readiness,
    heap: new SmallHeap(deps.families),
    ports,
    log,
    onEvent: deps.onEvent,
    onSynced: () => {
      onFirstSync?.();
      onFirstSync = undefined;
      localhost?.set(localNodePorts(proxies.map(({ tracker }) => tracker)));
    },
    onDisagreement: () => drift.refused(),
    proxyOf,
  });
  const localhost =
    config.nodePortAddresses.hasLocalhost === true ? new LocalNodePorts({ netns, log, clock: systemClock }) : undefined;
  const guard = addressGuard(deps, {
    proxyOf,
    onChange: () => judgeAgain(),
  });
  const families = deps.families.map(
    (family) =>
      new NodeAwareProxy(family, config, kernel, {
        node,
        observer,
        log,
        clock: systemClock,
        judge: guard,
        steps: serviceSteps(recording, family),
      }),
  );
  const proxies = families.map(({ proxy }) => proxy);
  // The tables of an earlier run are complete, so load balancers may send connections to this node.
  const adopt = (): void => {
    const planes = proxies.map(({ plane }) => plane);
    if (areAdopted(planes, log)) health.adopted();
  };
  adopt();
  const judgeAgain = (): void => {
    for (const proxy of proxies) if (proxy.tracker.markExternal()) proxy.request();
  };
  const nodes = new OtherNodesReader(
    { api, onNodes: (found) => guard.setOtherNodes(found), log, clock: systemClock, random: Math.random },
    config.nodeName,
  );
  const setHostAddresses = (): void => {
    for (const { family, hostAddresses } of families) guard.setHostAddresses(family, hostAddresses);
  };
  setHostAddresses();
  const setHealthAddresses = (): void => {
    for (const { family, healthAddresses } of families) ports.setAddresses(family, healthAddresses);
  };
  setHealthAddresses();
  const readAddresses = (): void => {
    for (const family of families) family.readHostAddresses(node);
    setHealthAddresses();
    setHostAddresses();
  };
  const check = new FamilyCheck(config, { families: deps.families, log });
  const onNode = (object: Node | undefined): boolean => {
    // A deleted Node keeps its last state: the machine still serves.
    if (object === undefined) return node.addresses.length > 0;
    health.node(nodeView(object));
    node = keepKnown(nodeNetwork(object, config.bindAddress), node);
    check.node(node);
    guard.setNode(namedAddresses(object), node.podCIDRs);
    for (const family of families) family.setNode(node);
    setHealthAddresses();
    return node.addresses.length > 0;
  };
  const onWatch = (resource: string, state: InformerHealth): void => {
    deps.readiness.watch(resource, state);
    const isNeeded = resource === "services" || resource === "endpointslices";
    if (state.state === "ready") {
      watches.connected(resource);
      if (isNeeded) health.refused(resource, false);
      return;
    }
    watches.failed(resource, state.error.code);
    if (state.failures === 1)
      log.warn("watching the API server failed; trying again", { resource, error: state.error.message });
    if (isAway(state.error)) {
      adopt();
      health.away();
    } else if (isNeeded) health.refused(resource, true);
  };
  const onKnown = (): void => {
    for (const proxy of proxies) proxy.open();
  };
  const onChange = (kind: "service" | "endpoint", family: IpFamily): void => syncs.changed(kind, family);
  const changed = new Dirty(systemClock);
  await using _addresses = monitors.watch(netns, { addresses: true }, () => changed.mark());
  const drift = new DriftWatch({
    generations: kernel.generations,
    families: proxies,
    clock: systemClock,
    log,
    openWriters: () => openNftWriters(netns),
    onRepaired: () => syncs.repaired(),
    onContested: (isOn) => syncs.contested(isOn),
  });
  const fill = new AffinityFill({
    families: proxies,
    onCount: (family, entries) => syncs.objects(family, "affinity", entries),
    onTrim: (family, clients) => syncs.affinityTrimmed(family, clients),
    clock: systemClock,
    log,
  });
  const group = new TaskGroup(signal);
  group.spawn((at) => nodes.run({ signal: at }));
  group.spawn((at) => guard.run({ signal: at }));
  group.spawn((at) => findApiServer(deps.apiServer, guard, { signal: at, log }));
  group.spawn((at) => fill.run({ signal: at }));
  if (localhost !== undefined) group.spawn((at) => localhost.run({ signal: at }));
  for (const proxy of proxies) group.spawn((at) => proxy.run({ signal: at }));
  group.spawn((at) => drift.run({ signal: at }));
  group.spawn((at) => followAddresses(readAddresses, { changed, signal: at, log }));
  const { allowServiceExternalIPs: allowExternalIPs } = config.gates;
  const targets = {
    families: proxies.map((proxy) => ({
      family: proxy.family,
      tracker: proxy.tracker,
      request: (): void => {
        if (proxy.tracker.hasExternal) nodes.need();
        proxy.request();
      },
      setServiceCIDRs: (cidrs: readonly Cidr[]): void => {
        guard.setServiceCIDRs(proxy.family, cidrs);
        proxy.setServiceCIDRs(cidrs);
      },
    })),
    clock: systemClock,
    onNode,
    onListed: () => {
      health.listed();
      // The tables of an earlier run serve these Services already; a first start opens their ports after its first sync.
      if (health.startup !== "adopted") return;
      for (const { family, tracker } of proxies) ports.setServices(family, healthCheckedServices(tracker));
    },
    onKnown,
    onRead: (resource: string) => deps.readiness.read(resource),
    onAbsent: (resource: string) => deps.readiness.absent(resource),
    onWatch,
    onChange,
    onService: serviceWarnings({ log, onEvent: deps.onEvent }, { allowExternalIPs, lacksHealthPort }),
    allowExternalIPs,
    stepsOf: recording === undefined ? undefined : (type: ResourceType<KubeObject>) => recording.stepsFor(type),
    onEvent: deps.onEvent,
    log,
  };
  group.spawn((at) => watchInputs(api, targets, { nodeName: config.nodeName, signal: at }));
  log.info("started", { node: config.nodeName, families: families.map(({ family }) => family) });
  await group.wait();
}

/** The steps in which Services of one family are computed. */
function serviceSteps(recording: PassRecording | undefined, family: IpFamily): ServiceSteps | undefined {
  if (recording === undefined) return undefined;
  const name = `services-ipv${family}`;
  const workOn = (key: string, version: () => string): RecordedWork => {
    const { name: service, namespace = "" } = parseObjectKey(key);
    return { name, key, version, about: () => ({ apiVersion: "v1", kind: "Service", namespace, name: service }) };
  };
  return {
    step: (key, version, work, options) => recording.step(workOn(key, version), work, options),
    endedWell: (key, version) => recording.endedWell(workOn(key, version)),
  };
}
