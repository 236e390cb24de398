import type { AbortOptions } from "#base/async";
import { poll } from "#base/async";
import { systemClock } from "#base/clock";
import { isKubeError, type KubeApi, type Node, resources } from "#kube/client";
import { isForLab, type LabIdentity } from "#lab/ownership";
import type { Balancer } from "./services-balancer.ts";
import type { Load } from "./services-load.ts";
import type { DrainReport, LoadResult } from "./services-report.ts";

/** The taint of the cluster autoscaler on a node that it is about to delete. */
const TAINT = { key: "ToBeDeletedByClusterAutoscaler", effect: "NoSchedule" } as const;
const LOOK_MS = 20;
/** Timeout of each step, in milliseconds. */
const STEP_MS = 60_000;
/** Connections before and after the drain, so that the start of the load is not measured. */
const SETTLED = 100;

/** Balancers of both external traffic policies. */
export interface Balancers {
  readonly cluster: Balancer;
  readonly local: Balancer;
}

/**
 * Drains a node as the cluster autoscaler does, under load: taint and cordon, wait for the balancer, evict, wait for
 * open connections, delete. Then a new Node gets its name. Rejects with `KubeError` and with the signal's reason.
 */
export async function drainNode(
  at: {
    readonly api: KubeApi;
    readonly identity: LabIdentity;
    readonly load: Load;
    readonly balancers: Balancers;
  },
  name: string,
  options: AbortOptions,
): Promise<Omit<DrainReport, keyof LoadResult>> {
  const { api, identity, load } = at;
  const { cluster, local } = at.balancers;
  const until = (done: () => boolean): Promise<number | null> => waitUntil(done, options);
  const more = (): Promise<number | null> => {
    const from = load.connections;
    return until(() => load.connections >= from + SETTLED);
  };
  await until(() => cluster.isIn(name) && local.isIn(name));
  await more();
  await until(() => cluster.openOn(name) > 0);
  const through = cluster.sentTo(name);
  const underWay = cluster.openOn(name);
  const before = await api.get(resources.nodes, { name }, options);
  const taints = [...(before.spec?.taints ?? []), TAINT];
  const merge = { type: "merge", body: { spec: { unschedulable: true, taints } } } as const;
  await api.patch(resources.nodes, { name }, merge, options);
  const outSeconds = await until(() => !cluster.isIn(name));
  await evict(api, { identity, node: name }, options);
  const localOutSeconds = await until(() => !local.isIn(name));
  await poll(() => podsOn(api, { identity, node: name }, options), {
    until: (left) => left.length === 0,
    everyMs: LOOK_MS,
    deadlineMs: STEP_MS,
    signal: options.signal,
    clock: systemClock,
  });
  await until(() => cluster.openOn(name) + local.openOn(name) === 0);
  await api.delete(resources.nodes, { name }, options);
  await more();
  await replaceNode(api, before, options);
  const sent = cluster.sentTo(name);
  const backSeconds = await until(() => cluster.sentTo(name) > sent);
  await more();
  return { node: name, through, underWay, outSeconds, localOutSeconds, backSeconds };
}

interface OnNode {
  readonly identity: LabIdentity;
  readonly node: string;
}

/** Like `kubectl drain --ignore-daemonsets` without waiting: every pod of the lab is deleted, with its own grace period. */
async function evict(api: KubeApi, at: OnNode, options: AbortOptions): Promise<void> {
  for (const { namespace, name } of await podsOn(api, at, options)) {
    try {
      await api.delete(resources.pods, { namespace, name }, options);
    } catch (error) {
      if (!isKubeError(error, "not-found")) throw error;
    }
  }
}

async function podsOn(
  api: KubeApi,
  { identity, node }: OnNode,
  options: AbortOptions,
): Promise<readonly { readonly namespace: string | undefined; readonly name: string }[]> {
  const { items } = await api.listAll(resources.pods, { ...options, fieldSelector: `spec.nodeName=${node}` });
  return items
    .filter((pod) => isForLab(identity, pod))
    .map(({ metadata: { namespace, name } }) => ({ namespace, name }));
}

/** Creates another Node of the same name, with the status of the one before. */
async function replaceNode(api: KubeApi, { metadata, spec, status }: Node, options: AbortOptions): Promise<void> {
  const { name, labels = {} } = metadata;
  // The taints keep pods of the cluster off the new Node.
  const { taints = [] } = spec ?? {};
  await api.create(resources.nodes, { metadata: { name, labels }, spec: { taints } }, options);
  const merge = { type: "merge", body: { status } } as const;
  await api.patch(resources.nodes, { name }, merge, { ...options, subresource: "status" });
}

/** Seconds until the condition holds; `null` after the timeout. */
async function waitUntil(done: () => boolean, { signal }: AbortOptions): Promise<number | null> {
  const startedMs = performance.now();
  const isSo = await poll(done, {
    until: (so) => so,
    everyMs: LOOK_MS,
    deadlineMs: STEP_MS,
    signal,
    clock: systemClock,
  });
  return isSo ? Number(((performance.now() - startedMs) / 1000).toFixed(3)) : null;
}
