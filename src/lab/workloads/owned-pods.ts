import { createHash } from "node:crypto";
import { isKubeError, type KubeApi, type KubeObject, type Pod, type ResourceType, resources } from "#kube/client";
import type { Informer } from "#kube/informer";

/** The owner of pods. */
export interface PodOwner {
  readonly apiVersion: string;
  readonly kind: string;
  readonly name: string;
  readonly namespace: string;
  readonly uid: string;
}

/** The part of a pod template that is used. */
export interface PodTemplate {
  readonly metadata?: { readonly labels?: Record<string, string>; readonly annotations?: Record<string, string> };
  readonly spec?: NonNullable<Pod["spec"]>;
}

export const HASH_LABEL = "pod-template-hash";

/** A hash of the template, ten characters. */
export function templateHash(template: PodTemplate): string {
  return createHash("sha256").update(JSON.stringify(template)).digest("hex").slice(0, 10);
}

/** Lists the owner's pods from the API server: with an old cache, pods would be made twice. */
export async function listOwnedPods(
  api: KubeApi,
  owner: PodOwner,
  selector: Readonly<Record<string, string>>,
  signal: AbortSignal,
): Promise<Pod[]> {
  const labelSelector = Object.entries(selector)
    .map(([key, value]) => `${key}=${value}`)
    .join(",");
  const { items } = await api.listAll(resources.pods, { namespace: owner.namespace, labelSelector, signal });
  return items.filter((pod) => pod.metadata.ownerReferences?.some((reference) => reference.uid === owner.uid) === true);
}

/** Makes one pod of the template, for a node or for the scheduler. */
export async function createOwnedPod(
  api: KubeApi,
  owner: PodOwner,
  template: PodTemplate,
  options: { readonly hash: string; readonly nodeName?: string; readonly signal: AbortSignal },
): Promise<void> {
  const { apiVersion, kind, name, namespace, uid } = owner;
  await api.create(
    resources.pods,
    {
      metadata: {
        generateName: `${name}-${options.hash.slice(0, 5)}-`,
        namespace,
        labels: { ...template.metadata?.labels, [HASH_LABEL]: options.hash },
        annotations: template.metadata?.annotations ?? {},
        ownerReferences: [{ apiVersion, kind, name, uid, controller: true, blockOwnerDeletion: true }],
      },
      spec: {
        containers: [],
        ...template.spec,
        ...(options.nodeName === undefined ? {} : { nodeName: options.nodeName }),
      },
    },
    { signal: options.signal },
  );
}

/** Requests a pod's deletion. No effect if it does not exist any more. */
export async function deleteOwnedPod(api: KubeApi, pod: Pick<Pod, "metadata">, signal: AbortSignal): Promise<void> {
  const { name, namespace, uid } = pod.metadata;
  try {
    await api.delete(resources.pods, { name, namespace }, { preconditions: { uid }, signal });
  } catch (error) {
    // After a conflict the caller tries again, and its list then has the new pod.
    if (!isKubeError(error, "not-found")) throw error;
  }
}

export function isReady(pod: Pod): boolean {
  return (
    pod.status?.conditions?.some((condition) => condition.type === "Ready" && condition.status === "True") === true
  );
}

/** Calls `enqueue` with `namespace/name` of the owner whenever a pod of an owner of that kind changes. */
export function watchOwnedPods(pods: Informer<Pod, Pod>, kind: string, enqueue: (key: string) => void): void {
  const enqueueOwner = ({ metadata }: Pod): void => {
    const owner = metadata.ownerReferences?.find((reference) => reference.kind === kind);
    if (owner !== undefined) enqueue(`${metadata.namespace}/${owner.name}`);
  };
  pods.addHandler({
    onAdd: enqueueOwner,
    onUpdate: (_before, after) => enqueueOwner(after),
    onDelete: enqueueOwner,
  });
}

/** Writes a status, with `more`, if one of its counts has changed. No effect if the object was deleted. */
export async function reportStatus<T extends KubeObject & { readonly status?: object }>(
  api: KubeApi,
  type: ResourceType<T>,
  object: T,
  status: { readonly counts: Readonly<Record<string, number>>; readonly more?: object },
  signal: AbortSignal,
): Promise<void> {
  const known: Readonly<Record<string, unknown>> = { ...object.status };
  if (Object.entries(status.counts).every(([name, value]) => known[name] === value)) return;
  const { name, namespace, uid } = object.metadata;
  const body = { metadata: { uid }, status: { ...status.counts, ...status.more } };
  try {
    await api.patch(type, { name, namespace }, { type: "merge", body }, { subresource: "status", signal });
  } catch (error) {
    if (!isKubeError(error, "not-found")) throw error;
  }
}
