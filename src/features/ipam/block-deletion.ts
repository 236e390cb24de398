import type { AbortOptions } from "#base/async";
import { findObject, isKubeError, type KubeApi } from "#kube/client";
import { type AddressBlock, COIL_FINALIZER, coilResources } from "#kube/coil";

const { addressBlocks } = coilResources;
/** The maximum number of tries before a conflict is reported. */
const MAX_CONFLICTS = 8;

/**
 * Deletes the block with this UID, and only if `mayGo` is true for the version that is deleted. The block is deleted first, and its
 * finalizer is removed after that: if the deletion is refused, the block stays usable. `mayGo` is called before each of the two steps, so a
 * block whose node has returned in between keeps its finalizer until that node releases it. Returns false if the block must stay, or waits
 * for the finalizer of another program; true if it is deleted or another block has its name. Rejects with `KubeError`.
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
      let deleted = live;
      if (live.metadata.deletionTimestamp === undefined) {
        const preconditions = { uid, resourceVersion: live.metadata.resourceVersion };
        const result = await api.delete(addressBlocks, { name }, { ...options, preconditions });
        if (result.kind === "status") return true;
        deleted = result.object;
      }
      return await removeFinalizer(api, deleted, mayGo, options);
    } catch (error) {
      if (isKubeError(error, "not-found")) return true;
      if (!isKubeError(error, "conflict") || conflicts >= MAX_CONFLICTS) throw error;
    }
  }
}

/** Removes our finalizer from a block that is being deleted. Rejects with `conflict` if the block has changed since it was read. */
async function removeFinalizer(
  api: KubeApi,
  block: AddressBlock,
  mayGo: (block: AddressBlock) => boolean | Promise<boolean>,
  options: AbortOptions,
): Promise<boolean> {
  const finalizers = block.metadata.finalizers ?? [];
  if (!finalizers.includes(COIL_FINALIZER)) return finalizers.length === 0;
  if (!(await mayGo(block))) return false;
  const kept = finalizers.filter((finalizer) => finalizer !== COIL_FINALIZER);
  await api.replace(addressBlocks, { ...block, metadata: { ...block.metadata, finalizers: kept } }, options);
  return kept.length === 0;
}
