import type { AbortOptions } from "#base/async";
import type { Logger } from "#base/log";
import { findObject, isKubeError, type KubeApi, resources } from "#kube/client";
import { type AddressBlock, COIL_FINALIZER, coilResources, NODE_LABEL } from "#kube/coil";
import { IpamError } from "./errors.ts";
import type { PoolManager } from "./pool-manager.ts";

const { addressBlocks, addressPools } = coilResources;

/**
 * Brings what is known of a pool up to date, and lets a pool go that is being deleted and has no block left (spec
 * pod-network 3.3). Rejects with `KubeError`; call again then.
 */
export async function reconcilePool(
  deps: { readonly api: KubeApi; readonly pools: PoolManager; readonly log: Logger },
  name: string,
  options: AbortOptions,
): Promise<void> {
  const blocks = await deps.pools.sync(name, options);
  if (blocks !== 0) return;
  const pool = await findObject(deps.api, addressPools, { name }, options);
  const finalizers = pool?.metadata.finalizers ?? [];
  if (pool?.metadata.deletionTimestamp === undefined || !finalizers.includes(COIL_FINALIZER)) return;
  const kept = finalizers.filter((finalizer) => finalizer !== COIL_FINALIZER);
  await deps.api.replace(addressPools, { ...pool, metadata: { ...pool.metadata, finalizers: kept } }, options);
  deps.log.info("pool has no blocks left and is let go", { pool: name });
}

/**
 * Deletes the blocks of nodes that are gone (spec pod-network 3.4). Blocks are listed before nodes, and each node is
 * looked up again just before its block goes. One block that cannot be deleted does not stop the others; all failures are
 * thrown together. Returns how many were deleted.
 */
export async function collectOrphans(
  deps: { readonly api: KubeApi; readonly log: Logger },
  options: AbortOptions,
): Promise<number> {
  const blocks = await deps.api.listAll(addressBlocks, options);
  const nodes = await deps.api.listAll(resources.nodes, options);
  const present = new Set(nodes.items.map((node) => node.metadata.name));
  const failures: unknown[] = [];
  let deleted = 0;
  for (const block of blocks.items) {
    const node = block.metadata.labels?.[NODE_LABEL] ?? "";
    if (present.has(node)) continue;
    try {
      if (node !== "" && (await findObject(deps.api, resources.nodes, { name: node }, options)) !== undefined) continue;
      await deleteBlock(deps.api, block, options);
      deleted += 1;
      deps.log.info("block of a node that is gone was deleted", { block: block.metadata.name, node });
    } catch (error) {
      if (!isKubeError(error)) throw error;
      failures.push(error);
    }
  }
  if (failures.length > 0) {
    const cause = new AggregateError(failures);
    throw new IpamError("api-unavailable", `${failures.length} orphan blocks could not be deleted`, { cause });
  }
  return deleted;
}

/** Removes our finalizer and deletes, but only this very block and only while its node label stays what it was. */
async function deleteBlock(api: KubeApi, block: AddressBlock, options: AbortOptions): Promise<void> {
  let live: AddressBlock | undefined = block;
  for (let tries = 0; live !== undefined; tries += 1) {
    if (live.metadata.uid !== block.metadata.uid) return;
    if (live.metadata.labels?.[NODE_LABEL] !== block.metadata.labels?.[NODE_LABEL]) return;
    try {
      const finalizers: readonly string[] = live.metadata.finalizers ?? [];
      const kept = finalizers.filter((finalizer) => finalizer !== COIL_FINALIZER);
      if (kept.length < finalizers.length) {
        live = await api.replace(addressBlocks, { ...live, metadata: { ...live.metadata, finalizers: kept } }, options);
      }
      const { uid, resourceVersion } = live.metadata;
      await api.delete(
        addressBlocks,
        { name: live.metadata.name },
        { ...options, preconditions: { uid, resourceVersion } },
      );
      return;
    } catch (error) {
      if (isKubeError(error, "not-found")) return;
      if (!isKubeError(error, "conflict") || tries >= 8) throw error;
      live = await findObject(api, addressBlocks, { name: block.metadata.name }, options);
    }
  }
}
