import type { AbortOptions } from "#base/async";
import { findObject, isKubeError, type KubeApi } from "#kube/client";
import { type AddressBlock, COIL_FINALIZER, coilResources } from "#kube/coil";

const { addressBlocks } = coilResources;
/** The maximum number of tries before a conflict is reported. */
const MAX_CONFLICTS = 8;

/**
 * Deletes the block with this UID, and only if `mayGo` is true for the version that is deleted. The deletion comes first and the
 * finalizer goes last: a deletion that is refused leaves the block as usable as it was. `mayGo` is called before each of both, so a
 * block whose node came back in between keeps its finalizer until its node gives it back. Returns false when the block must stay,
 * true when it is gone or another one has its name. Rejects with `KubeError`.
 */
export async function deleteBlock(
  api: KubeApi,
  { name, uid }: { readonly name: string; readonly uid: string },
  mayGo: (block: AddressBlock) => boolean | Promise<boolean>,
  options: AbortOptions,
): Promise<boolean> {
  for (let conflicts = 0; ; conflicts += 1) {
    const live = await findObject(api, addressBlocks, { name }, options);
    if (live === undefined || live.metadata.uid !== uid) return true;
    if (!(await mayGo(live))) return false;
    try {
      if (live.metadata.deletionTimestamp === undefined) {
        const preconditions = { uid, resourceVersion: live.metadata.resourceVersion };
        await api.delete(addressBlocks, { name }, { ...options, preconditions });
      }
      return await removeFinalizer(api, { name, uid }, mayGo, options);
    } catch (error) {
      if (isKubeError(error, "not-found")) return true;
      if (!isKubeError(error, "conflict") || conflicts >= MAX_CONFLICTS) throw error;
    }
  }
}

/** Removes our finalizer from a block that is being deleted, and from no other. */
async function removeFinalizer(
  api: KubeApi,
  { name, uid }: { readonly name: string; readonly uid: string },
  mayGo: (block: AddressBlock) => boolean | Promise<boolean>,
  options: AbortOptions,
): Promise<boolean> {
  const live = await findObject(api, addressBlocks, { name }, options);
  const finalizers = live?.metadata.finalizers ?? [];
  if (live?.metadata.uid !== uid || live.metadata.deletionTimestamp === undefined) return true;
  if (!finalizers.includes(COIL_FINALIZER)) return true;
  if (!(await mayGo(live))) return false;
  const kept = finalizers.filter((finalizer) => finalizer !== COIL_FINALIZER);
  await api.replace(addressBlocks, { ...live, metadata: { ...live.metadata, finalizers: kept } }, options);
  return true;
}
