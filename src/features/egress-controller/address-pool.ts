import type { AbortOptions } from "#base/async";
import type { Cidr } from "#base/ip";
import type { Logger } from "#base/log";
import { type Draft, isKubeError, type KubeApi } from "#kube/client";
import {
  type AddressPool,
  COIL_FINALIZER,
  coilResources,
  EGRESS_NAMESPACE_LABEL,
  type Egress,
  egressLabels,
  egressPoolName,
  outsideOfRanges,
} from "#kube/coil";

/**
 * Pure: the pool of an Egress with `spec.addresses`, whose blocks are single addresses; `undefined` without. Nobody owns it: an object without a
 * namespace cannot have an owner in one.
 */
export function addressPoolOf({ metadata: { name, namespace = "" }, spec }: Egress): Draft<AddressPool> | undefined {
  if (spec.addresses === undefined || spec.addresses.length === 0) return undefined;
  return {
    metadata: {
      name: egressPoolName({ namespace, name }),
      labels: { ...egressLabels(name), [EGRESS_NAMESPACE_LABEL]: namespace },
      finalizers: [COIL_FINALIZER],
    },
    spec: { blockSizeBits: 0, subnets: spec.addresses },
  };
}

/** The Egress of a pool, as `NAMESPACE/NAME`; `undefined` for a pool of another maker. */
export function egressOfPool({ metadata: { name, labels = {} } }: Pick<AddressPool, "metadata">): string | undefined {
  const namespace = labels[EGRESS_NAMESPACE_LABEL];
  const egress = labels["app.kubernetes.io/instance"];
  if (namespace === undefined || egress === undefined) return undefined;
  return egressPoolName({ namespace, name: egress }) === name ? `${namespace}/${egress}` : undefined;
}

/** Why an Egress may not have its addresses, as a sentence; `undefined` if it may. A cluster without webhooks stores any. */
export function notAllowed({ spec }: Egress, ranges: readonly Cidr[]): string | undefined {
  const [first] = outsideOfRanges(spec.addresses ?? [], ranges);
  return first === undefined ? undefined : `${first.fault.field}: ${first.fault.message}`;
}

/** The pools of Egresses among all pools. */
export const EGRESS_POOLS = {
  labelSelector: "app.kubernetes.io/name=coil,app.kubernetes.io/component=egress",
} as const;

/**
 * Deletes the pools of Egresses, for a controller that has no ranges any more. Without the right to list pools none was made. Rejects with
 * `KubeError`.
 */
export async function removePools(api: KubeApi, log: Logger, options: AbortOptions): Promise<void> {
  for (const pool of await poolsOf(api, options)) {
    if (egressOfPool(pool) === undefined || pool.metadata.deletionTimestamp !== undefined) continue;
    await removePool(api, log, pool, options);
  }
}

async function poolsOf(api: KubeApi, options: AbortOptions): Promise<readonly AddressPool[]> {
  try {
    return (await api.listAll(coilResources.addressPools, { ...EGRESS_POOLS, ...options })).items;
  } catch (error) {
    if (!isKubeError(error, "forbidden")) throw error;
    return [];
  }
}

/** Deletes a pool. Its finalizer holds it until the last router has ended. Rejects with `KubeError`. */
export async function removePool(
  api: Pick<KubeApi, "delete">,
  log: Logger,
  { metadata: { name, uid } }: Pick<AddressPool, "metadata">,
  options: AbortOptions,
): Promise<void> {
  try {
    await api.delete(coilResources.addressPools, { name }, { ...options, preconditions: { uid } });
    log.info("pool of an Egress's addresses deleted", { pool: name });
  } catch (error) {
    if (!isKubeError(error, "not-found")) throw error;
  }
}
