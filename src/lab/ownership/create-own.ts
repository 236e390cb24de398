import type { AbortOptions } from "#base/async";
import { type Draft, isKubeError, type KubeApi, type KubeObject, objectKey, type ResourceType } from "#kube/client";
import { OwnershipError } from "./errors.ts";
import { isOwn, type LabIdentity, ownLabels } from "./identity.ts";

/**
 * Creates an object with the lab's labels. An object that this run has created already is not changed, on the lab's own API server this
 * applies to any object. For a guest an existing object of others is an {@link OwnershipError} `not-ours`. Rejects with `KubeError`.
 */
export async function createOwn<T extends KubeObject>(
  api: Pick<KubeApi, "create" | "get">,
  identity: LabIdentity,
  type: ResourceType<T>,
  draft: Draft<T>,
  options: AbortOptions = {},
): Promise<T> {
  const metadata = { ...draft.metadata, labels: { ...draft.metadata.labels, ...ownLabels(identity) } };
  const { name = "", namespace } = metadata;
  try {
    return await api.create(type, { ...draft, metadata }, options);
  } catch (error) {
    // The object may exist because the response to an earlier request was lost; it is ours then.
    if (!isKubeError(error, "already-exists")) throw error;
    const found = await api.get(type, { name, namespace }, options);
    if (!identity.isGuest || isOwn(identity, found)) return found;
    throw new OwnershipError(
      "not-ours",
      `${type.kind} ${objectKey(found)} is on the cluster already and is not this lab's: the lab does not change it; remove it, or start the lab again with another --name`,
      { cause: error },
    );
  }
}
