import { Dirty, TaskGroup } from "#base/async";
import { systemClock } from "#base/clock";
import type { Cidr, IpFamily } from "#base/ip";
import type { Logger } from "#base/log";
import {
  type EventSink,
  lacksHealthPort,
  type NodeHealth,
  nodeView,
  type ServicePorts,
  SyncMetrics,
  type serviceProxyMetrics,
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
import type { InformerHealth } from "#kube/informer";
import { type Part, startParts } from "../../shared/daemon-kit/index.ts";
import type { PassRecording, RecordedWork } from "../../shared/pass-record/index.ts";
import type { ServiceProxyConfig } from "../../shared/service-proxy-config/index.ts";
import { addressGuard, findApiServer, namedAddresses } from "./address-guard.ts";
import { areAdopted } from "./adopted.ts";
import { followAddresses } from "./host-addresses.ts";
import type { Readiness } from "./readiness.ts";
import { SmallHeap } from "./small-heap.ts";
import { healthCheckedServices, syncObserver } from "./sync-observer.ts";
import { FamilyCheck } from "./wrong-family.ts";

/** The resources of the API that the proxy watches. */
export const RESOURCES = ["services", "endpointslices", "nodes", "servicecidrs"] as const;

/** Collaborators of {@link NodeProxy}. */
export interface NodeProxyParts {
  readonly config: ServiceProxyConfig;
  readonly kernel: ProxyKernel;
  readonly api: KubeApi;
  /** The API server by the kubeconfig. */
  readonly apiServer: URL;
  readonly sockets: SockDiag;
  readonly monitors: Monitors;
  readonly netns: NetNs;
  readonly metrics: ReturnType<typeof serviceProxyMetrics>;
  readonly families: readonly IpFamily[];
  readonly health: NodeHealth;
  readonly readiness: Readiness;
  readonly ports: ServicePorts;
  readonly onEvent: EventSink;
  readonly recording: PassRecording | undefined;
  readonly log: Logger;
  /** Called once, when the tables of one family are in the kernel for the first time. */
  readonly onFirstSync?: (() => void) | undefined;
}

/** The Services of the cluster on this node: the proxies of both families follow Services, the Node, and the addresses of the host. */
export class NodeProxy {
  readonly #parts: NodeProxyParts;
  readonly #families: readonly NodeAwareProxy[];
  readonly #guard: ReturnType<typeof addressGuard>;
  readonly #syncs: SyncMetrics;
  readonly #watches: WatchMetrics;
  readonly #drift: DriftWatch;
  readonly #nodes: OtherNodesReader;
  readonly #check: FamilyCheck;
  readonly #localhost: LocalNodePorts | undefined;
  #node: ReturnType<typeof unknownNode>;
  #onFirstSync: (() => void) | undefined;

  constructor(parts: NodeProxyParts) {
    const { config, kernel, api, netns, metrics, log, recording } = parts;
    this.#parts = parts;
    this.#onFirstSync = parts.onFirstSync;
    this.#node = unknownNode(config.bindAddress);
    this.#watches = new WatchMetrics(metrics, {
      resources: RESOURCES,
      reasons: [...new Set([...KUBE_ERROR_CODES, ...KUBE_CONFIG_ERROR_CODES])],
    });
    this.#syncs = new SyncMetrics(metrics, { families: parts.families, clock: systemClock });
    this.#localhost =
      config.nodePortAddresses.hasLocalhost === true
        ? new LocalNodePorts({ netns, log, clock: systemClock })
        : undefined;
    const proxyOf = (family: IpFamily) => this.#proxies.find((one) => one.family === family);
    this.#guard = addressGuard(parts, { proxyOf, onChange: () => this.#judgeAgain() });
    const shared = { node: this.#node, observer: this.#observer(proxyOf), log, clock: systemClock, judge: this.#guard };
    this.#families = parts.families.map(
      (family) => new NodeAwareProxy(family, config, kernel, { ...shared, steps: serviceSteps(recording, family) }),
    );
    this.#check = new FamilyCheck(config, { families: parts.families, log });
    const onNodes: ConstructorParameters<typeof OtherNodesReader>[0]["onNodes"] = (found) =>
      this.#guard.setOtherNodes(found);
    this.#nodes = new OtherNodesReader({ api, onNodes, log, clock: systemClock, random: Math.random }, config.nodeName);
    this.#drift = this.#watchDrift();
  }

  get #proxies(): readonly FamilyProxy[] {
    return this.#families.map(({ proxy }) => proxy);
  }

  #observer(proxyOf: (family: IpFamily) => FamilyProxy | undefined): ReturnType<typeof syncObserver> {
    const { health, readiness, ports, families, onEvent, log } = this.#parts;
    return syncObserver({
      ...{ syncs: this.#syncs, health, readiness, heap: new SmallHeap(families), ports, log, onEvent, proxyOf },
      onSynced: () => {
        this.#onFirstSync?.();
        this.#onFirstSync = undefined;
        this.#localhost?.set(localNodePorts(this.#proxies.map(({ tracker }) => tracker)));
      },
      onDisagreement: () => this.#drift.refused(),
    });
  }

  #watchDrift(): DriftWatch {
    const { kernel, netns, log } = this.#parts;
    return new DriftWatch({
      generations: kernel.generations,
      families: this.#proxies,
      clock: systemClock,
      log,
      openWriters: () => openNftWriters(netns),
      onRepaired: () => this.#syncs.repaired(),
      onContested: (isOn) => this.#syncs.contested(isOn),
    });
  }

  /** Proxies until the signal aborts. The tables of an earlier run serve at once. */
  async run({ signal }: { readonly signal: AbortSignal }): Promise<void> {
    const { config, api, apiServer, monitors, netns, log } = this.#parts;
    this.#adopt();
    this.#setHostAddresses();
    this.#setHealthAddresses();
    const changed = new Dirty(systemClock);
    await using _addresses = monitors.watch(netns, { addresses: true }, () => changed.mark("address"));
    const fill = this.#affinityFill();
    const readAddresses = (): void => this.#readAddresses();
    const localhost = this.#localhost;
    const parts: readonly Part[] = [
      { name: "other-nodes", run: (at) => this.#nodes.run(at) },
      { name: "address-guard", run: (at) => this.#guard.run(at) },
      { name: "api-server", run: (at) => findApiServer(apiServer, this.#guard, { ...at, log }) },
      { name: "affinity", run: (at) => fill.run(at) },
      ...(localhost === undefined ? [] : [{ name: "localhost", run: (at) => localhost.run(at) } satisfies Part]),
      ...this.#proxies.map((proxy): Part => ({ name: `ipv${proxy.family}`, run: (at) => proxy.run(at) })),
      { name: "drift", run: (at) => this.#drift.run(at) },
      { name: "addresses", run: (at) => followAddresses(readAddresses, { ...at, changed, log }) },
      { name: "inputs", run: (at) => watchInputs(api, this.#targets(), { ...at, nodeName: config.nodeName }) },
    ];
    const group = new TaskGroup(signal);
    startParts(parts, group);
    log.info("started", { node: config.nodeName, families: this.#families.map(({ family }) => family) });
    await group.wait();
  }

  #affinityFill(): AffinityFill {
    return new AffinityFill({
      families: this.#proxies,
      onCount: (family, entries) => this.#syncs.objects(family, "affinity", entries),
      onTrim: (family, clients) => this.#syncs.affinityTrimmed(family, clients),
      clock: systemClock,
      log: this.#parts.log,
    });
  }

  /** The tables of an earlier run are complete, so load balancers may send connections to this node. */
  #adopt(): void {
    const planes = this.#proxies.map(({ plane }) => plane);
    if (areAdopted(planes, this.#parts.log)) this.#parts.health.adopted();
  }

  #judgeAgain(): void {
    for (const proxy of this.#proxies) if (proxy.tracker.markExternal()) proxy.request();
  }

  #setHostAddresses(): void {
    for (const { family, hostAddresses } of this.#families) this.#guard.setHostAddresses(family, hostAddresses);
  }

  #setHealthAddresses(): void {
    for (const { family, healthAddresses } of this.#families) this.#parts.ports.setAddresses(family, healthAddresses);
  }

  #readAddresses(): void {
    for (const family of this.#families) family.readHostAddresses(this.#node);
    this.#setHealthAddresses();
    this.#setHostAddresses();
  }

  /** Takes this Node's object. Returns true once its addresses are known. */
  #onNode(object: Node | undefined): boolean {
    // A deleted Node keeps its last state: the machine still serves.
    if (object === undefined) return this.#node.addresses.length > 0;
    const { config, health } = this.#parts;
    health.node(nodeView(object));
    this.#node = keepKnown(nodeNetwork(object, config.bindAddress), this.#node);
    this.#check.node(this.#node);
    this.#guard.setNode(namedAddresses(object), this.#node.podCIDRs);
    for (const family of this.#families) family.setNode(this.#node);
    this.#setHealthAddresses();
    return this.#node.addresses.length > 0;
  }

  #onWatch(resource: string, state: InformerHealth): void {
    const { health, readiness, log } = this.#parts;
    readiness.watch(resource, state);
    const isNeeded = resource === "services" || resource === "endpointslices";
    if (state.state === "ready") {
      this.#watches.connected(resource);
      if (isNeeded) health.refused(resource, false);
      return;
    }
    this.#watches.failed(resource, state.error.code);
    if (state.failures === 1)
      log.warn("watching the API server failed; trying again", { resource, error: state.error.message });
    if (isAway(state.error)) {
      this.#adopt();
      health.away();
    } else if (isNeeded) health.refused(resource, true);
  }

  #onListed(): void {
    const { health, ports } = this.#parts;
    health.listed();
    // The tables of an earlier run serve these Services already; a first start opens their ports after its first sync.
    if (health.startup !== "adopted") return;
    for (const { family, tracker } of this.#proxies) ports.setServices(family, healthCheckedServices(tracker));
  }

  #targets(): Parameters<typeof watchInputs>[1] {
    const { config, readiness, recording, onEvent, log } = this.#parts;
    const { allowServiceExternalIPs: allowExternalIPs } = config.gates;
    return {
      families: this.#proxies.map((proxy) => ({
        family: proxy.family,
        tracker: proxy.tracker,
        request: (): void => {
          if (proxy.tracker.hasExternal) this.#nodes.need();
          proxy.request();
        },
        setServiceCIDRs: (cidrs: readonly Cidr[]): void => {
          this.#guard.setServiceCIDRs(proxy.family, cidrs);
          proxy.setServiceCIDRs(cidrs);
        },
      })),
      clock: systemClock,
      onNode: (object) => this.#onNode(object),
      onListed: () => this.#onListed(),
      onKnown: () => {
        for (const proxy of this.#proxies) proxy.open();
      },
      onRead: (resource) => readiness.read(resource),
      onAbsent: (resource) => readiness.absent(resource),
      onWatch: (resource, state) => this.#onWatch(resource, state),
      onChange: (kind, family) => this.#syncs.changed(kind, family),
      onService: serviceWarnings({ log, onEvent }, { allowExternalIPs, lacksHealthPort }),
      allowExternalIPs,
      stepsOf: recording === undefined ? undefined : (type: ResourceType<KubeObject>) => recording.stepsFor(type),
      onEvent,
      log,
    };
  }
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
