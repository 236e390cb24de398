import type { AbortOptions } from "#base/async";
import { findObject, isKubeError, type KubeApi } from "#kube/client";
import { type AddressBlock, COIL_FINALIZER, coilResources } from "#kube/coil";

const { addressBlocks } = coilResources;
/** Tries before a conflict is reported. */
const MAX_CONFLICTS = 8;

/**
 * Deletes this very block, by UID, and only while `mayGo` is true of the version that is deleted. The deletion comes first and the
 * finalizer goes last: a deletion that is refused leaves the block as usable as it was. Resolves as well when the block is gone,
 * another one, or must not go. Rejects with `KubeError`.
 */
export async function deleteBlock(
  api: KubeApi,
  { name, uid }: { readonly name: string; readonly uid: string },
  mayGo: (block: AddressBlock) => boolean,
  options: AbortOptions,
): Promise<void> {
  for (let conflicts = 0; ; conflicts += 1) {
    const live = await findObject(api, addressBlocks, { name }, options);
    if (live === undefined || live.metadata.uid !== uid) return;
    try {
      if (live.metadata.deletionTimestamp === undefined) {
        if (!mayGo(live)) return;
        const preconditions = { uid, resourceVersion: live.metadata.resourceVersion };
        await api.delete(addressBlocks, { name }, { ...options, preconditions });
      }
      await removeFinalizer(api, { name, uid }, options);
      return;
    } catch (error) {
      if (isKubeError(error, "not-found")) return;
      if (!isKubeError(error, "conflict") || conflicts >= MAX_CONFLICTS) throw error;
    }
  }
}

/** Lets a block go that is being deleted, and no other. */
async function removeFinalizer(
  api: KubeApi,
  { name, uid }: { readonly name: string; readonly uid: string },
  options: AbortOptions,
): Promise<void> {
  const live = await findObject(api, addressBlocks, { name }, options);
  const finalizers = live?.metadata.finalizers ?? [];
  if (live?.metadata.uid !== uid || live.metadata.deletionTimestamp === undefined) return;
  if (!finalizers.includes(COIL_FINALIZER)) return;
  const kept = finalizers.filter((finalizer) => finalizer !== COIL_FINALIZER);
  await api.replace(addressBlocks, { ...live, metadata: { ...live.metadata, finalizers: kept } }, options);
}
