import type { AbortOptions } from "#base/async";
import { poll } from "#base/async";
import { systemClock } from "#base/clock";
import { IpAddress, type IpFamily } from "#base/ip";
import { type KubeApi, type Pod, resources } from "#kube/client";
import { LabError } from "#lab/host";
import { NETNS_ANNOTATION } from "#lab/kubelet";
import type { LabIdentity } from "#lab/ownership";
import { type BackendName, replicasOf, servicesNamespace } from "./services-objects.ts";

/** Interval of polls of the cluster while waiting, in milliseconds. */
const LOOK_MS = 100;

/** A pod behind a Service. */
export interface BackendPod {
  readonly name: string;
  readonly app: string;
  readonly node: string;
  readonly netns: string;
  readonly addresses: readonly IpAddress[];
}

/** A Service as read from the API server. */
export interface ObservedService {
  readonly clusterIps: readonly IpAddress[];
  readonly ingress: readonly IpAddress[];
  readonly nodePort: number;
  readonly healthCheckNodePort: number;
}

/** The Services of the lab and their pods. */
export interface ObservedServices {
  readonly services: ReadonlyMap<string, ObservedService>;
  readonly pods: readonly BackendPod[];
}

/** Reads Services and their running pods. Rejects with `KubeError`. */
export async function observeServices(
  api: KubeApi,
  identity: LabIdentity,
  options: AbortOptions,
): Promise<ObservedServices> {
  const namespace = servicesNamespace(identity);
  const services = await api.listAll(resources.services, { namespace, ...options });
  const pods = await api.listAll(resources.pods, { namespace, ...options });
  return {
    services: new Map(
      services.items.map(({ metadata, spec, status }) => [
        metadata.name,
        {
          clusterIps: (spec?.clusterIPs ?? []).map((text) => IpAddress.parse(text)),
          ingress: (status?.loadBalancer?.ingress ?? []).flatMap(({ ip }) =>
            ip === undefined ? [] : [IpAddress.parse(ip)],
          ),
          nodePort: spec?.ports?.[0]?.nodePort ?? 0,
          healthCheckNodePort: spec?.healthCheckNodePort ?? 0,
        },
      ]),
    ),
    pods: pods.items.filter(isServing).map((pod) => ({
      name: pod.metadata.name,
      app: pod.metadata.labels?.["app"] ?? "",
      node: pod.spec?.nodeName ?? "",
      netns: pod.metadata.annotations?.[NETNS_ANNOTATION] ?? "",
      addresses: (pod.status?.podIPs ?? []).flatMap(({ ip }) => (ip === undefined ? [] : [IpAddress.parse(ip)])),
    })),
  };
}

/** Pure: the address of a family. */
export function ofFamily(addresses: readonly IpAddress[], family: IpFamily): IpAddress | undefined {
  return addresses.find((address) => address.family === family);
}

/**
 * Waits until each Deployment, or the named one, has the pods that it wants. All are then made from its present template, and none
 * terminates. Rejects with {@link LabError} `not-reached`.
 */
export async function waitForBackends(
  api: KubeApi,
  { identity, nodes, only }: { readonly identity: LabIdentity; readonly nodes: number; readonly only?: BackendName },
  options: AbortOptions & { readonly deadlineMs: number },
): Promise<void> {
  const look = async (): Promise<string> => {
    const { signal } = options;
    const namespace = servicesNamespace(identity);
    const deployments = await api.listAll(resources.deployments, { namespace, signal });
    const pods = await api.listAll(resources.pods, { namespace, signal });
    const awaited = deployments.items.filter(({ metadata }) => only === undefined || metadata.name === only);
    const waiting = awaited.flatMap(({ metadata, spec, status }) => {
      const wanted = replicasOf(metadata.name as BackendName, nodes);
      const own = pods.items.filter((pod) => pod.metadata.labels?.["app"] === metadata.name);
      const isDone =
        spec?.replicas === wanted &&
        status?.observedGeneration === metadata.generation &&
        status?.updatedReplicas === wanted &&
        own.length === wanted &&
        own.every(isServing);
      return isDone ? [] : [`${metadata.name}: ${own.filter(isServing).length} of ${wanted} pods, ${own.length} there`];
    });
    return waiting.join("; ");
  };
  const left = await poll(look, {
    until: (waiting) => waiting === "",
    everyMs: LOOK_MS,
    deadlineMs: options.deadlineMs,
    signal: options.signal,
    clock: systemClock,
  });
  if (left !== "")
    throw new LabError(
      "not-reached",
      `the pods of Services are not ready after ${options.deadlineMs / 1000} s: ${left}`,
    );
}

function isServing({ metadata, status }: Pod): boolean {
  const isReady = status?.conditions?.some(({ type, status: value }) => type === "Ready" && value === "True") === true;
  return isReady && metadata.deletionTimestamp === undefined && metadata.annotations?.[NETNS_ANNOTATION] !== undefined;
}
