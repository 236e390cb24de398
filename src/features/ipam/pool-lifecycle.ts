import type { AbortOptions } from "#base/async";
import type { Logger } from "#base/log";
import { findObject, type KubeApi } from "#kube/client";
import { COIL_FINALIZER, coilResources } from "#kube/coil";
import type { PoolManager } from "./pool-manager.ts";

const { addressPools } = coilResources;

/**
 * Reads a pool again, and removes its finalizer if it is being deleted and has no block any more (docs/spec/pod-network.md#3.3). Rejects
 * with `KubeError`; the caller then tries again.
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
  deps.log.info("a deleted pool has no blocks any more; its finalizer was removed", { pool: name });
}
