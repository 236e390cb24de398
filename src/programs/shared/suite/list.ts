import { readFact } from "#base/diagnosis";
import {
  enforcersOf,
  type Instance,
  instancesOf,
  type Objects,
  POD_NAMES,
  type PolicyFacts,
} from "#features/suite-report";
import {
  isKubeError,
  type KubeClient,
  type KubeObject,
  type ListOptions,
  type ResourceType,
  resources,
} from "#kube/client";

/** The time of one request to the API server, in milliseconds. */
export const REQUEST_MS = 10_000;

/** The pods of the suite by the label of their manifests. */
const SELECTOR = `app.kubernetes.io/name in (${POD_NAMES.join(",")})`;

/** The programs of the suite in pods. Rejects with `KubeError`. */
export function listPods(
  api: KubeClient,
  { signal, namespace }: { readonly signal: AbortSignal; readonly namespace?: string | undefined },
): Promise<readonly Instance[]> {
  return collect(api, resources.pods, { signal, namespace, labelSelector: SELECTOR }, (pod) =>
    instancesOf(pod, namespace),
  );
}

/** Lists objects of a kind that the cluster may not have. */
export async function listOptional<T extends KubeObject>(
  api: KubeClient,
  type: ResourceType<T>,
  options: ListOptions,
): Promise<Objects<T>> {
  return readFact(async () => {
    try {
      return (await api.listAll(type, { timeoutMs: REQUEST_MS, ...options })).items;
    } catch (error) {
      if (isKubeError(error, "not-found")) return undefined;
      throw error;
    }
  });
}

/** Lists objects page by page and keeps a view of each. */
export async function collect<T extends KubeObject, V>(
  api: KubeClient,
  type: ResourceType<T>,
  options: ListOptions,
  viewOf: (object: T) => readonly V[],
): Promise<readonly V[]> {
  const views: V[] = [];
  for await (const page of api.listPages(type, { timeoutMs: REQUEST_MS, ...options }))
    for (const object of page.items) views.push(...viewOf(object));
  return views;
}

/** The time in which the API server must answer at all, in milliseconds. */
const FIRST_MS = 5000;

/** Rejects with `KubeError` if the API server does not answer within some seconds: then a report has nothing to tell. */
export async function requireServer(api: KubeClient, { signal }: { readonly signal: AbortSignal }): Promise<void> {
  await api.fetch("/version", { signal, timeoutMs: FIRST_MS, maxBytes: 65_536 });
}

/** The number of objects of a kind. Of most servers it reads one object, and the number of the others. Rejects with `KubeError`. */
export async function count<T extends KubeObject>(
  api: KubeClient,
  type: ResourceType<T>,
  { signal }: { readonly signal: AbortSignal },
): Promise<number> {
  const options = { signal, metadataOnly: true, timeoutMs: REQUEST_MS };
  const { items, remainingItemCount, continueToken } = await api.list(type, { ...options, limit: 1 });
  if (continueToken === undefined || remainingItemCount !== undefined) return items.length + (remainingItemCount ?? 0);
  // A server may leave the number out.
  return (await collect(api, type, options, () => [1])).length;
}

/** The NetworkPolicies, and who enforces them. Without policies nothing else is read. Rejects with `KubeError`. */
export async function readPolicies(
  api: KubeClient,
  { signal }: { readonly signal: AbortSignal },
): Promise<PolicyFacts> {
  const policies = await count(api, resources.networkPolicies, { signal });
  if (policies === 0) return { policies, enforcers: [], k3sNodes: 0 };
  const enforcers = await collect(api, resources.daemonSets, { signal }, enforcersOf);
  if (enforcers.length > 0) return { policies, enforcers, k3sNodes: 0 };
  const k3s = await collect(api, resources.nodes, { signal }, ({ status }) =>
    status?.nodeInfo?.kubeletVersion?.includes("+k3s") === true ? [1] : [],
  );
  return { policies, enforcers, k3sNodes: k3s.length };
}
