import type { AbortOptions } from "#base/async";
import { poll } from "#base/async";
import { systemClock } from "#base/clock";
import { IpAddress } from "#base/ip";
import { type Draft, type KubeApi, type Pod, resources } from "#kube/client";
import { COIL_FINALIZER, coilResources, EGRESS_ANNOTATION_PREFIX, type Egress, egressSelector } from "#kube/coil";
import { type LabEgress, LabError } from "#lab/host";
import { NETNS_ANNOTATION } from "#lab/kubelet";
import { createOwn, type LabIdentity } from "#lab/ownership";
import { makeNamespace } from "./apply.ts";

/** The pool of the routers: each block is one address, so that the outside sees the same few ones, whatever the node. */
const ROUTER_SUBNETS = { 4: "10.103.0.0/26", 6: "fd10:103::/122" } as const;
/** The pool of the default scenario with every family of the lab. */
const CLIENT_POOL = "dual";
const CLIENT_NAMESPACE = "clients";
/** Longer than a router drains. */
const GRACE_SECONDS = 20;
const LOOK_MS = 50;

/** Egresses of the lab: `both` has every family and one router, `pair` one family and two. */
export type EgressName = "both" | "pair";
export const EGRESSES: readonly EgressName[] = ["both", "pair"];
export const REPLICAS: Readonly<Record<EgressName, number>> = { both: 1, pair: 2 };

/** The pods of the test: four clients, and two that use no Egress. */
const PODS: Readonly<Record<string, readonly EgressName[]>> = {
  client1: ["both"],
  client2: ["pair"],
  client3: ["pair"],
  client4: ["both", "pair"],
  plain1: [],
  plain2: [],
};

/** A pod that runs. */
export interface EgressPod {
  readonly name: string;
  readonly node: string;
  readonly netns: string;
  readonly addresses: readonly IpAddress[];
}

/** A router of an Egress. */
export type RouterPod = EgressPod & { readonly egress: EgressName };
/** A pod with the Egresses that it names. */
export type ClientPod = EgressPod & { readonly egresses: readonly EgressName[] };

/** Pure: the destinations of a site that an Egress has at first. */
export function destinationsOf(egress: EgressName, { sites }: Pick<LabEgress, "sites">): readonly string[] {
  const networks = sites.find(({ name }) => name === egress)?.networks ?? [];
  return egress === "both" ? networks : networks.slice(0, 1);
}

/** Creates the routers' pool and namespace and the Egresses, and waits for their routers. Rejects with `KubeError`, `OwnershipError`, {@link LabError}. */
export async function applyEgresses(
  api: KubeApi,
  { at, identity }: { readonly at: LabEgress; readonly identity: LabIdentity },
  options: AbortOptions & { readonly deadlineMs: number /** Default: all. */; readonly only?: readonly EgressName[] },
): Promise<void> {
  const { namespace } = at;
  const { only = EGRESSES } = options;
  const networks = at.sites[0]?.networks ?? [];
  const subnet = Object.fromEntries(
    networks.map((text) => (text.includes(":") ? ["ipv6", ROUTER_SUBNETS[6]] : ["ipv4", ROUTER_SUBNETS[4]])),
  );
  const pool = {
    metadata: { name: namespace, finalizers: [COIL_FINALIZER] },
    spec: { blockSizeBits: 0, subnets: [subnet] },
  };
  await createOwn(api, identity, coilResources.addressPools, pool, options);
  await makeNamespace(api, identity, { name: namespace, pool: namespace }, options);
  for (const egress of only) await createOwn(api, identity, coilResources.egresses, egressOf(egress, at), options);
  for (const egress of only) await waitForRouters(api, at, egress, options);
}

function egressOf(name: EgressName, at: LabEgress): Draft<Egress> {
  const container = { name: "egress", command: [...at.router.command], args: [...at.router.args] };
  return {
    metadata: { name, namespace: at.namespace },
    spec: {
      destinations: [...destinationsOf(name, at)],
      replicas: REPLICAS[name],
      // Of `pair` each flow has a router of its own, until routers go.
      sessionAffinity: name === "pair" ? "None" : "ClientIP",
      template: { spec: { terminationGracePeriodSeconds: GRACE_SECONDS, containers: [container] } },
    },
  } as Draft<Egress>;
}

/** Changes fields of an Egress. Rejects with `KubeError`. */
export async function editEgress(
  api: KubeApi,
  { namespace }: Pick<LabEgress, "namespace">,
  { name, spec }: { readonly name: EgressName; readonly spec: object },
  options: AbortOptions,
): Promise<void> {
  await api.patch(coilResources.egresses, { name, namespace }, { type: "merge", body: { spec } }, options);
}

/** Waits until an Egress has `count` ready routers, which is what it wants at first, and no other. Rejects with {@link LabError} `not-reached`. */
export async function waitForRouters(
  api: KubeApi,
  { namespace }: Pick<LabEgress, "namespace">,
  egress: EgressName,
  options: AbortOptions & { readonly deadlineMs: number; readonly count?: number },
): Promise<readonly RouterPod[]> {
  const { signal, count = REPLICAS[egress] } = options;
  const look = async (): Promise<{ readonly all: readonly Pod[]; readonly ready: readonly Pod[] }> => {
    const { items: all } = await api.listAll(resources.pods, {
      namespace,
      labelSelector: egressSelector(egress),
      signal,
    });
    return { all, ready: all.filter(isReady) };
  };
  const { all, ready } = await poll(look, {
    until: (found) => found.all.length === count && found.ready.length === count,
    everyMs: LOOK_MS,
    deadlineMs: options.deadlineMs,
    signal,
    clock: systemClock,
  });
  if (all.length === count && ready.length === count) return ready.map((pod) => ({ ...observed(pod), egress }));
  const why = all.map(({ metadata, status }) => `${metadata.name}: ${status?.message ?? status?.phase ?? "waits"}`);
  throw new LabError(
    "not-reached",
    `Egress ${namespace}/${egress} has ${ready.length} of ${count} routers after ${options.deadlineMs / 1000} s; ${why.join("; ") || "no pod is there: see the log of coil-egress-controller"}`,
  );
}

/**
 * Creates the clients and the pods without an Egress, by default all of the test, and waits until they run. Rejects with `KubeError`,
 * {@link LabError} `not-reached`.
 */
export async function applyClients(
  api: KubeApi,
  { at, identity }: { readonly at: LabEgress; readonly identity: LabIdentity },
  options: AbortOptions & {
    readonly deadlineMs: number;
    /** The Egresses of each pod, by its name. */
    readonly only?: Readonly<Record<string, readonly EgressName[]>>;
  },
): Promise<readonly ClientPod[]> {
  const { only = PODS } = options;
  const namespace = CLIENT_NAMESPACE;
  await makeNamespace(api, identity, { name: namespace, pool: `${identity.prefix}${CLIENT_POOL}` }, options);
  for (const [name, egresses] of Object.entries(only)) {
    const annotations = { [`${EGRESS_ANNOTATION_PREFIX}${at.namespace}`]: egresses.join(",") };
    const draft = {
      metadata: { name, namespace, ...(egresses.length === 0 ? {} : { annotations }) },
      spec: { terminationGracePeriodSeconds: 0, containers: [{ name: "main", image: "lab.isthmus.dev/pause" }] },
    };
    await createOwn(api, identity, resources.pods, draft, options);
  }
  const { signal } = options;
  const look = async (): Promise<readonly Pod[]> => (await api.listAll(resources.pods, { namespace, signal })).items;
  const pods = await poll(look, {
    until: (found) => found.length === Object.keys(only).length && found.every(isReady),
    everyMs: LOOK_MS,
    deadlineMs: options.deadlineMs,
    signal,
    clock: systemClock,
  });
  const late = pods.find((pod) => !isReady(pod));
  if (late !== undefined) {
    const why = late.status?.message ?? "it has not started yet";
    throw new LabError("not-reached", `pod ${namespace}/${late.metadata.name} does not run: ${why}`);
  }
  return pods.map((pod) => ({ ...observed(pod), egresses: only[pod.metadata.name] ?? [] }));
}

function observed({ metadata, spec, status }: Pod): EgressPod {
  return {
    name: metadata.name,
    node: spec?.nodeName ?? "",
    netns: metadata.annotations?.[NETNS_ANNOTATION] ?? "",
    addresses: (status?.podIPs ?? []).flatMap(({ ip }) => (ip === undefined ? [] : [IpAddress.parse(ip)])),
  };
}

function isReady({ metadata, status }: Pod): boolean {
  const ready = status?.conditions?.some((one) => one.type === "Ready" && one.status === "True") === true;
  return ready && metadata.deletionTimestamp === undefined && metadata.annotations?.[NETNS_ANNOTATION] !== undefined;
}
