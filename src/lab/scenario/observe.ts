import { type AbortOptions, sleep } from "#base/async";
import { IpAddress } from "#base/ip";
import { type KubeApi, type Node, type Pod, resources } from "#kube/client";
import { LabError } from "#lab/host";
import { NETNS_ANNOTATION } from "#lab/kubelet";
import { type LabIdentity, ownSelector } from "#lab/ownership";
import type { PingSource, PingTarget } from "#lab/ping";
import type { Scenario } from "./default.ts";

/** A lab's cluster as read from its API server. */
export interface ObservedCluster {
  readonly nodes: readonly PingTarget[];
  readonly pods: readonly (PingSource & { readonly node: string })[];
}

/** Interval of polls while waiting, in milliseconds. */
const POLL_MS = 50;

/**
 * Waits until every workload's pods run and have addresses, and every node is ready. Rejects with {@link LabError}
 * `not-reached` after `deadlineMs`, naming a pod that waits and why, or a node.
 */
export async function waitForPods(
  api: KubeApi,
  scenario: Scenario,
  options: AbortOptions & {
    readonly deadlineMs: number;
    readonly onProgress: (running: number, wanted: number) => void;
  },
): Promise<void> {
  const wanted = scenario.workloads.reduce((sum, workload) => sum + workload.replicas, 0);
  const deadline = performance.now() + options.deadlineMs;
  let told = -1;
  for (;;) {
    const pods = await scenarioPods(api, scenario, options);
    const running = pods.filter(isRunning).length;
    if (running !== told) options.onProgress(running, wanted);
    told = running;
    // If there are few pods, some nodes have none. Such a node may not be ready yet.
    const waitingNode =
      running === wanted && pods.length === wanted ? await findUnreadyNode(api, scenario.identity, options) : undefined;
    if (running === wanted && pods.length === wanted && waitingNode === undefined) return;
    if (performance.now() > deadline) {
      throw waitingNode === undefined
        ? notReached(pods, running, wanted, options.deadlineMs)
        : new LabError("not-reached", `node ${waitingNode} is not ready after ${options.deadlineMs / 1000} s`);
    }
    await sleep(POLL_MS, options);
  }
}

/** Reads nodes and running pods. */
export async function observeCluster(
  api: KubeApi,
  scenario: Scenario,
  options: AbortOptions,
): Promise<ObservedCluster> {
  const nodes = await ownNodes(api, scenario.identity, options);
  const pods = await scenarioPods(api, scenario, options);
  return {
    nodes: nodes.map((node) => ({
      name: node.metadata.name,
      addresses: (node.status?.addresses ?? [])
        .filter((entry) => entry.type === "InternalIP")
        .map((entry) => IpAddress.parse(entry.address)),
    })),
    pods: pods.filter(isRunning).map((pod) => ({
      name: `${pod.metadata.namespace}/${pod.metadata.name}`,
      node: pod.spec?.nodeName ?? "",
      netns: pod.metadata.annotations?.[NETNS_ANNOTATION] ?? "",
      addresses: (pod.status?.podIPs ?? []).flatMap(({ ip }) => (ip === undefined ? [] : [IpAddress.parse(ip)])),
    })),
  };
}

/** The lab's Nodes, without other Nodes of a cluster that the lab did not make. Rejects with `KubeError`. */
export async function ownNodes(
  api: KubeApi,
  identity: LabIdentity,
  { signal }: AbortOptions,
): Promise<readonly Node[]> {
  return (await api.listAll(resources.nodes, { labelSelector: ownSelector(identity), signal })).items;
}

async function scenarioPods(api: KubeApi, scenario: Scenario, { signal }: AbortOptions): Promise<Pod[]> {
  const namespaces = new Set(scenario.workloads.map((workload) => workload.namespace));
  const lists = await Promise.all(
    [...namespaces].map((namespace) => api.listAll(resources.pods, { namespace, signal })),
  );
  const names = new Set(scenario.workloads.map((workload) => `${workload.namespace}/${workload.name}`));
  return lists
    .flatMap((list) => list.items)
    .filter((pod) => names.has(`${pod.metadata.namespace}/${pod.metadata.labels?.["app"]}`));
}

/** The name of a node that is not ready. */
async function findUnreadyNode(
  api: KubeApi,
  identity: LabIdentity,
  options: AbortOptions,
): Promise<string | undefined> {
  const nodes = await ownNodes(api, identity, options);
  const isReady = ({ status }: Node): boolean =>
    status?.conditions?.some(({ type, status: value }) => type === "Ready" && value === "True") === true;
  return nodes.find((node) => !isReady(node))?.metadata.name;
}

function isRunning(pod: Pod): boolean {
  const ready = pod.status?.phase === "Running" && (pod.status.podIPs ?? []).length > 0;
  return (
    ready && pod.metadata.deletionTimestamp === undefined && pod.metadata.annotations?.[NETNS_ANNOTATION] !== undefined
  );
}

function notReached(pods: readonly Pod[], running: number, wanted: number, deadlineMs: number): LabError {
  const waiting = pods.find((pod) => !isRunning(pod));
  const why =
    waiting?.status?.message ?? (waiting?.spec?.nodeName === undefined ? "not scheduled yet" : "not started yet");
  const example = waiting === undefined ? "" : `; ${waiting.metadata.namespace}/${waiting.metadata.name}: ${why}`;
  return new LabError("not-reached", `${running} of ${wanted} pods run after ${deadlineMs / 1000} s${example}`);
}
