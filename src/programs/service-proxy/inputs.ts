import { TaskGroup, unlessAborted } from "#base/async";
import { Cidr, type IpFamily } from "#base/ip";
import type { Logger } from "#base/log";
import { type FamilyProxy, PROXY_NAME_LABEL, portsOf, type SliceView, sliceView } from "#features/service-proxy";
import { type KubeApi, type KubeObject, type Node, resources, resourceType, type Service } from "#kube/client";
import { allSynced, createInformer, type Informer, type InformerHealth } from "#kube/informer";
import { type FirstRead, FirstReads } from "./first-reads.ts";

/** networking.k8s.io/v1 ServiceCIDR, as far as it is read. */
export interface ServiceCIDR extends KubeObject {
  readonly spec?: { readonly cidrs?: readonly string[] };
}

/** The ranges that Services have their addresses from. */
export const serviceCIDRs = resourceType<ServiceCIDR>({
  group: "networking.k8s.io",
  version: "v1",
  kind: "ServiceCIDR",
  plural: "servicecidrs",
  namespaced: false,
});

/** What decides about the tables beside Services and slices. */
const FIRST_READS: readonly FirstRead[] = [
  {
    resource: "nodes",
    without:
      "NodePorts and Local policies need the Node's addresses: let the proxy list and watch nodes; --hostname-override names another Node",
  },
  {
    resource: "servicecidrs",
    without: "addresses that no Service has are not dropped: let the proxy list and watch servicecidrs",
    isOptional: true,
  },
];

/** Slices of headless Services carry this label. */
const HEADLESS_LABEL = "service.kubernetes.io/headless";
/** Which Services and slices are the proxy's, as label selectors. */
export const OURS = { services: `!${PROXY_NAME_LABEL}`, slices: `!${HEADLESS_LABEL}` } as const;

/** Who is told of what the API says. */
export interface InputTargets {
  readonly families: readonly FamilyProxy[];
  /** True: what is needed of it is there. */
  readonly onNode: (node: Node | undefined) => boolean;
  /** Services and slices are both known. */
  readonly onListed: () => void;
  /** All that decides about the tables has been read once. */
  readonly onKnown: () => void;
  /** A Service was added or changed; `undefined`: it is gone. */
  readonly onService?: (name: string, service: Service | undefined) => void;
  readonly onWatch: (resource: string, health: InformerHealth) => void;
  /** A change that waits to be synced. */
  readonly onChange?: (kind: "service" | "endpoint", family: IpFamily) => void;
  readonly allowExternalIPs: boolean;
  readonly log: Logger;
}

/** Services, slices, the Node and the ranges of Services, watched until the signal aborts. */
export async function watchInputs(
  api: KubeApi,
  targets: InputTargets,
  { nodeName, signal }: { readonly nodeName: string; readonly signal: AbortSignal },
): Promise<void> {
  const { families } = targets;
  const reads = new FirstReads(FIRST_READS, { log: targets.log });
  const onHealth = (resource: string) => (health: InformerHealth) => {
    reads.onHealth(resource, health);
    targets.onWatch(resource, health);
  };
  const services = createInformer(api, resources.services, {
    labelSelector: OURS.services,
    transform: pruned,
    onHealth: onHealth("services"),
  });
  const slices = createInformer(api, resources.endpointSlices, {
    labelSelector: OURS.slices,
    transform: (slice) => sliceView(slice) ?? ({ metadata: slice.metadata } as Pick<SliceView, "metadata">),
    onHealth: onHealth("endpointslices"),
  });
  const nodes = createInformer(api, resources.nodes, {
    fieldSelector: `metadata.name=${nodeName}`,
    onHealth: onHealth("nodes"),
  });
  const ranges = createInformer(api, serviceCIDRs, { onHealth: onHealth("servicecidrs") });

  services.addHandler({
    onAdd: (service) => setService(targets, service),
    onUpdate: (_before, service) => setService(targets, service),
    onDelete: (service) => setService(targets, service, true),
  });
  const setSlice = (key: string, slice: object | undefined): void => {
    const view = slice !== undefined && "service" in slice ? (slice as SliceView) : undefined;
    for (const family of families) {
      if (!family.tracker.setSlice(key, view)) continue;
      targets.onChange?.("endpoint", family.family);
      family.request();
    }
  };
  const keyOf = ({
    metadata,
  }: {
    readonly metadata: { readonly name: string; readonly namespace?: string | undefined };
  }): string => `${metadata.namespace ?? ""}/${metadata.name}`;
  slices.addHandler({
    onAdd: (slice) => setSlice(keyOf(slice), slice),
    onUpdate: (_before, slice) => setSlice(keyOf(slice), slice),
    onDelete: (slice) => setSlice(keyOf(slice), undefined),
  });
  const onNode = (node: Node | undefined): void => {
    if (targets.onNode(node)) reads.read("nodes");
  };
  nodes.addHandler({
    onAdd: onNode,
    onUpdate: (_before, node) => onNode(node),
    onDelete: () => onNode(undefined),
  });
  const setRanges = (): void => {
    const cidrs = ranges.store.list().flatMap(rangesOf);
    for (const family of families) family.setServiceCIDRs(cidrs);
  };
  ranges.addHandler({ onAdd: setRanges, onUpdate: setRanges, onDelete: setRanges });

  const group = new TaskGroup(signal);
  const all: readonly Pick<Informer<KubeObject, KubeObject>, "run">[] = [services, slices, nodes, ranges];
  for (const informer of all) group.spawn((at) => informer.run({ signal: at }));
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
    if (nodes.store.size === 0) onNode(undefined);
    reads.lacks("nodes", nodes.store.size === 0 ? `there is no Node ${nodeName}` : `Node ${nodeName} has no addresses`);
  });
  signal.addEventListener("abort", () => reads.cancel(), { once: true });
  await group.wait();
}

/** The ranges of a ServiceCIDR that can be read. */
export function rangesOf({ spec }: ServiceCIDR): Cidr[] {
  return (spec?.cidrs ?? []).flatMap((text) => Cidr.tryParse(text) ?? []);
}

/** What is read of a Service: the rest of it, managed fields above all, is not kept. */
function pruned({ metadata, spec, status }: Service): Service {
  const { name, namespace, uid, resourceVersion, creationTimestamp } = metadata;
  return {
    metadata: {
      name,
      uid,
      resourceVersion,
      ...(namespace === undefined ? {} : { namespace }),
      ...(creationTimestamp === undefined ? {} : { creationTimestamp }),
    },
    ...(spec === undefined ? {} : { spec }),
    ...(status === undefined ? {} : { status }),
  };
}

function setService(targets: InputTargets, service: Service, isGone = false): void {
  const { families, allowExternalIPs } = targets;
  const name = `${service.metadata.namespace ?? ""}/${service.metadata.name}`;
  targets.onService?.(name, isGone ? undefined : service);
  for (const family of families) {
    const ports = isGone ? [] : portsOf(service, family.family, { allowExternalIPs });
    if (!family.tracker.setService(name, ports)) continue;
    targets.onChange?.("service", family.family);
    family.request();
  }
}
