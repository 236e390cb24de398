import { TaskGroup, unlessAborted } from "#base/async";
import type { Clock } from "#base/clock";
import { Cidr, type IpFamily } from "#base/ip";
import type { Logger } from "#base/log";
import {
  type EndpointSlice,
  isKubeError,
  type KubeApi,
  type KubeObject,
  type Node,
  type ResourceType,
  resources,
  resourceType,
  type Service,
} from "#kube/client";
import {
  allSynced,
  type Cached,
  createInformer,
  type Informer,
  type InformerHealth,
  type ObjectSteps,
} from "#kube/informer";
import type { ServicePort } from "../model/index.ts";
import { PROXY_NAME_LABEL, portsOf, type SliceView, sliceView, type Tracker } from "../track/index.ts";
import { type FirstRead, FirstReads } from "./first-reads.ts";
import {
  ifReadable,
  readable,
  type SHAPES,
  type Unreadable,
  type UnreadableEventSink,
  UnreadableReporter,
} from "./readable.ts";

/** The fields of networking.k8s.io/v1 ServiceCIDR that are read. */
export interface ServiceCIDR extends KubeObject {
  readonly spec?: { readonly cidrs?: readonly string[] };
}

/** ServiceCIDRs: the ranges of cluster IPs. */
export const serviceCIDRs = resourceType<ServiceCIDR>({
  group: "networking.k8s.io",
  version: "v1",
  kind: "ServiceCIDR",
  plural: "servicecidrs",
  namespaced: false,
});

/** The resources that decide the tables besides Services and slices. */
const FIRST_READS: readonly FirstRead[] = [
  {
    resource: "nodes",
    without:
      "NodePorts and Local policies need the Node's addresses: give the proxy the right to list and watch nodes; --hostname-override sets the name of the Node",
  },
  {
    resource: "servicecidrs",
    without: "addresses that no Service has are not dropped: give the proxy the right to list and watch servicecidrs",
    isOptional: true,
  },
];

/** Label of the slices of headless Services. */
const HEADLESS_LABEL = "service.kubernetes.io/headless";
/** Field selector of the Services that may have rules: headless ones are neither listed nor kept. Kubernetes has it from 1.30 on. */
const NOT_HEADLESS = "spec.clusterIP!=None";
/** Label selectors of the Services and slices that are the proxy's. */
export const PROXY_SELECTORS = { services: `!${PROXY_NAME_LABEL}`, slices: `!${HEADLESS_LABEL}` } as const;

/** The part of a `FamilyProxy` that inputs go to. */
export interface InputFamily {
  readonly family: IpFamily;
  readonly tracker: Tracker;
  /** Requests a sync because something changed in the tracker. */
  request(): void;
  setServiceCIDRs(cidrs: readonly Cidr[]): void;
}

/** Receivers of the objects that the API server reports. */
export interface InputTargets {
  readonly families: readonly InputFamily[];
  /** Returns true if the Node has all fields that the proxy needs. */
  readonly onNode: (node: Node | undefined) => boolean;
  /** Called when Services and slices have both been listed. */
  readonly onListed: () => void;
  /** Called when all inputs have been read once. */
  readonly onKnown: () => void;
  /** A Service was added or changed; `undefined`: it was deleted. */
  readonly onService?: (name: string, service: Service | undefined) => void;
  readonly onWatch: (resource: string, health: InformerHealth) => void;
  /** Called when a resource was listed for the first time. */
  readonly onRead?: (resource: string) => void;
  /** Called if the API server does not serve a resource that is optional. */
  readonly onAbsent?: (resource: string) => void;
  /** Called when a change waits to be synced. */
  readonly onChange?: (kind: "service" | "endpoint", family: IpFamily) => void;
  /** Steps of the informers of a resource; absent: an object that ends the process ends it each time. */
  readonly stepsOf?: ((type: ResourceType<KubeObject>) => ObjectSteps) | undefined;
  readonly allowExternalIPs: boolean;
  readonly onEvent: UnreadableEventSink;
  readonly log: Logger;
  readonly clock: Clock;
}

/** Watches Services, slices, the Node and ServiceCIDRs until the signal aborts. */
export async function watchInputs(
  api: KubeApi,
  targets: InputTargets,
  { nodeName, signal }: { readonly nodeName: string; readonly signal: AbortSignal },
): Promise<void> {
  const { families } = targets;
  const reads = new FirstReads(FIRST_READS, { log: targets.log, clock: targets.clock });
  const callbacks = (resource: keyof typeof SHAPES) => ({
    onHealth: (health: InformerHealth): void => {
      reads.onHealth(resource, health);
      targets.onWatch(resource, health);
      const isAbsent = health.state === "degraded" && isKubeError(health.error, "not-found");
      if (isAbsent && FIRST_READS.some((one) => one.resource === resource && one.isOptional === true)) {
        targets.onAbsent?.(resource);
      }
    },
    onNameless: (count: number): void =>
      targets.log.error("objects of the API server without a name are ignored", { resource, count }),
  });
  const services = createInformer(api, resources.services, {
    labelSelector: PROXY_SELECTORS.services,
    fieldSelector: NOT_HEADLESS,
    transform: readable("services", (service) => viewOfService(service, targets)),
    ...callbacks("services"),
    steps: targets.stepsOf?.(resources.services),
    clock: targets.clock,
  });
  const slices = createInformer(api, resources.endpointSlices, {
    labelSelector: PROXY_SELECTORS.slices,
    transform: readable("endpointslices", viewOf),
    ...callbacks("endpointslices"),
    steps: targets.stepsOf?.(resources.endpointSlices),
    clock: targets.clock,
  });
  const nodes = createInformer(api, resources.nodes, {
    fieldSelector: `metadata.name=${nodeName}`,
    transform: readable("nodes", (node) => node),
    ...callbacks("nodes"),
    clock: targets.clock,
  });
  const ranges = createInformer(api, serviceCIDRs, {
    transform: readable("servicecidrs", (range) => range),
    ...callbacks("servicecidrs"),
    clock: targets.clock,
  });

  const reporter = new UnreadableReporter(targets);
  follow(services, "services", reporter, (key, service) => setService(targets, key, service));
  follow(slices, "endpointslices", reporter, (key, slice) => {
    const view = slice?.service === undefined ? undefined : slice;
    for (const family of families) {
      if (!family.tracker.setSlice(key, view)) continue;
      targets.onChange?.("endpoint", family.family);
      family.request();
    }
  });
  const onNode = (node: Node | undefined): void => {
    if (targets.onNode(node)) reads.read("nodes");
  };
  follow(nodes, "nodes", reporter, (_key, node) => onNode(node));
  follow(ranges, "servicecidrs", reporter, () => {
    const cidrs = ranges.store.list().flatMap((one) => rangesOf(ifReadable(one)));
    for (const family of families) family.setServiceCIDRs(cidrs);
  });

  const group = new TaskGroup(signal);
  const informers = { services, endpointslices: slices, nodes, servicecidrs: ranges };
  for (const [resource, informer] of Object.entries(informers)) {
    group.spawn((at) => informer.run({ signal: at }));
    group.spawn(async (at) => {
      await allSynced([informer], { signal: at });
      targets.onRead?.(resource);
    });
  }
  group.spawn(async (at) => {
    await allSynced([services, slices], { signal: at });
    targets.onListed();
    await unlessAborted(reads.done, { signal: at });
    targets.onKnown();
  });
  group.spawn(async (at) => {
    await allSynced([ranges], { signal: at });
    reads.read("servicecidrs");
  });
  group.spawn(async (at) => {
    await allSynced([nodes], { signal: at });
    const isThere = nodes.store.list().some((node) => ifReadable(node) !== undefined);
    if (!isThere) onNode(undefined);
    reads.lacks("nodes", isThere ? `Node ${nodeName} has no addresses` : `there is no Node ${nodeName}`);
  });
  signal.addEventListener("abort", () => reads.cancel(), { once: true });
  await group.wait();
}

/** Calls `set` with each readable object, and with `undefined` when the object was deleted. */
function follow<U extends Cached>(
  informer: Pick<Informer<KubeObject, U | Unreadable>, "addHandler">,
  resource: keyof typeof SHAPES,
  reporter: UnreadableReporter,
  set: (key: string, object: U | undefined) => void,
): void {
  const look = (object: U | Unreadable, isGone = false): void => {
    const key = keyOf(object);
    reporter.report(resource, key, isGone ? undefined : object);
    set(key, isGone ? undefined : ifReadable<U>(object));
  };
  informer.addHandler({
    onAdd: (object) => look(object),
    onUpdate: (_before, object) => look(object),
    onDelete: (object) => look(object, true),
  });
}

function keyOf({ metadata }: Cached): string {
  return `${metadata.namespace ?? ""}/${metadata.name}`;
}

/** The parts of a slice that are kept. Of a slice without a Service only the metadata is kept. */
function viewOf(slice: EndpointSlice): SliceView | (Pick<SliceView, "metadata"> & { readonly service?: undefined }) {
  const { name, namespace = "", uid, resourceVersion } = slice.metadata;
  return sliceView(slice) ?? { metadata: { name, namespace, uid, resourceVersion } };
}

/** The readable ranges of a ServiceCIDR. */
export function rangesOf(range: ServiceCIDR | undefined): Cidr[] {
  return (range?.spec?.cidrs ?? []).flatMap((text) => Cidr.tryParse(text) ?? []);
}

/** The fields of a Service that are kept, shared with the trackers. */
interface ServiceView {
  readonly metadata: Service["metadata"];
  /** The receivers by family, in the order of {@link InputTargets.families}. */
  readonly ports: readonly (readonly ServicePort[])[];
  /** Kept if the Service's owner may get a warning. */
  readonly spec?: NonNullable<Service["spec"]>;
}

function viewOfService(service: Service, { families, allowExternalIPs }: InputTargets): ServiceView {
  const { name, namespace, uid, resourceVersion } = service.metadata;
  const { spec } = service;
  const isNotable = spec?.type === "LoadBalancer" || spec?.externalIPs !== undefined;
  return {
    metadata: { name, uid, resourceVersion, ...(namespace === undefined ? {} : { namespace }) },
    ports: families.map(({ family }) => portsOf(service, family, { allowExternalIPs })),
    ...(isNotable ? { spec } : {}),
  };
}

function setService(targets: InputTargets, key: string, service: ServiceView | undefined): void {
  targets.onService?.(key, service);
  for (const [at, family] of targets.families.entries()) {
    if (!family.tracker.setService(key, service?.ports[at] ?? [])) continue;
    targets.onChange?.("service", family.family);
    family.request();
  }
}
