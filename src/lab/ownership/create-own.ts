import type { AbortOptions } from "#base/async";
import { type Draft, isKubeError, type KubeApi, type KubeObject, objectKey, type ResourceType } from "#kube/client";
import { OwnershipError } from "./errors.ts";
import { isOwn, type LabIdentity, ownLabels } from "./identity.ts";

/**
 * Makes an object that bears the lab's labels, or finds that this run has made it. On the lab's own API server an object that is there is left
 * as it is; on another's cluster it rejects with {@link OwnershipError} `not-ours`. Rejects with `KubeError`.
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
    // An answer that was lost looks the same: then it is ours.
    if (!isKubeError(error, "already-exists")) throw error;
    const found = await api.get(type, { name, namespace }, options);
    if (!identity.isGuest || isOwn(identity, found)) return found;
    throw new OwnershipError(
      "not-ours",
      `${type.kind} ${objectKey(found)} is on the cluster already and is not this lab's: it is not touched; remove it, or start the lab again under another --name`,
      { cause: error },
    );
  }
}
