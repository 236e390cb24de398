import { type AbortOptions, sleep } from "#base/async";
import type { Clock } from "#base/clock";
import { findObject, isKubeError, type KubeApi, type KubeObject, type Lease, objectKey, resources } from "#kube/client";
import { coilResources } from "#kube/coil";
import type { CrdManifest } from "#kube/crd";
import { crdFault } from "./crd-fault.ts";
import { OwnershipError } from "./errors.ts";
import { LAB_LABEL, type LabIdentity, RUN_LABEL } from "./identity.ts";

/** The Lease of the controller that carves blocks. */
export const CONTROLLER_LEASE = { namespace: "kube-system", name: "coil-ipam-leader" } as const;

/** The holder of a Lease is dead if it does not renew for this time, in milliseconds. Kubelets renew every 10 s, leaders every 2 s. */
const SILENT_MS = 25_000;
/** A Lease whose own renew time is older than this is not waited for, in milliseconds: clocks do not differ by that time. */
const LONG_AGO_MS = 600_000;
const LOOK_MS = 500;

/** A run of a lab with objects on a cluster. */
export interface FoundRun {
  readonly lab: string;
  readonly run: string;
}

/**
 * Finds the runs of labs that have objects on a cluster. It lists their Leases: a run creates its Lease before its other objects and
 * deletes it near its end. Rejects with `KubeError`.
 */
export async function findRuns(api: Pick<KubeApi, "listAll">, options: AbortOptions): Promise<readonly FoundRun[]> {
  const selection = { labelSelector: `${LAB_LABEL},${RUN_LABEL}`, signal: options.signal };
  const lists = await Promise.all([
    api.listAll(resources.nodes, selection),
    api.listAll(resources.namespaces, selection),
    api.listAll(resources.leases, selection),
    api.listAll(resources.customResourceDefinitions, selection),
    api.listAll(coilResources.addressPools, selection).catch(noneWithoutType),
  ]);
  const found = new Map<string, FoundRun>();
  for (const { metadata } of lists.flatMap<KubeObject>(({ items }) => items)) {
    const { [LAB_LABEL]: lab = "", [RUN_LABEL]: run = "" } = metadata.labels ?? {};
    found.set(`${lab} ${run}`, { lab, run });
  }
  return [...found.values()];
}

/**
 * Resolves with true if a run's kubelets still renew their Leases. Takes up to {@link SILENT_MS} to detect that they do not. Rejects with `KubeError`.
 */
export async function isAlive(
  api: Pick<KubeApi, "listAll">,
  { lab, run }: FoundRun,
  options: AbortOptions & { readonly clock: Clock },
): Promise<boolean> {
  const look = async (): Promise<readonly Lease[]> => {
    const labelSelector = `${LAB_LABEL}=${lab},${RUN_LABEL}=${run}`;
    return (await api.listAll(resources.leases, { labelSelector, signal: options.signal })).items;
  };
  return isRenewed(look, options);
}

async function isRenewed(
  look: () => Promise<readonly Lease[]>,
  { signal, clock }: AbortOptions & { readonly clock: Clock },
): Promise<boolean> {
  const first = new Map((await look()).map((lease) => [objectKey(lease), lease] as const));
  const renewedMs = Array.from(first.values(), ({ spec }) => Date.parse(spec?.renewTime ?? "")).filter(Number.isFinite);
  if (renewedMs.every((ms) => Math.abs(clock.now() - ms) > LONG_AGO_MS)) return false;
  const deadline = clock.monotonic() + SILENT_MS;
  while (clock.monotonic() < deadline) {
    await sleep(LOOK_MS, { signal, clock });
    const isNews = (lease: Lease): boolean => first.get(objectKey(lease))?.spec?.renewTime !== lease.spec?.renewTime;
    if ((await look()).some(isNews)) return true;
  }
  return false;
}

/** The controller that carves blocks during the lab: its own, or the cluster's. */
export type BlockController = "own" | "cluster";

/**
 * Checks that a lab can be on a cluster without changing objects of others. Rejects with {@link OwnershipError}, which names the object in
 * the way and the fix, and with `KubeError`.
 */
export async function surveyCluster(
  api: Pick<KubeApi, "get" | "list" | "listAll">,
  identity: LabIdentity,
  crds: readonly CrdManifest[],
  options: AbortOptions & { readonly clock: Clock },
): Promise<BlockController> {
  const { signal } = options;
  for (const { lab, run } of await findRuns(api, { signal })) {
    if (run === identity.run) continue;
    throw new OwnershipError(
      "in-use",
      `lab ${lab} (run ${run}) has objects on the cluster, and two labs there would have the same addresses: remove it with isthmus lab down --name=${lab} --kubeconfig=FILE`,
    );
  }
  for (const crd of crds) {
    const found = await findObject(api, resources.customResourceDefinitions, { name: crd.metadata.name }, { signal });
    const fault = found === undefined ? undefined : crdFault(found, crd);
    if (fault === undefined) continue;
    throw new OwnershipError(
      "not-ours",
      `CustomResourceDefinition ${crd.metadata.name} is on the cluster, and a lab cannot use it: ${fault}. The lab does not change it. Apply deploy/crds, or use another cluster`,
    );
  }
  const look = async (): Promise<readonly Lease[]> => {
    const lease = await findObject(api, resources.leases, CONTROLLER_LEASE, { signal });
    return lease === undefined ? [] : [lease];
  };
  const [lease] = await look();
  if (lease !== undefined && (lease.spec?.holderIdentity ?? "") !== "" && (await isRenewed(look, options)))
    return "cluster";
  if (lease !== undefined) {
    throw new OwnershipError(
      "not-ours",
      `Lease ${objectKey(lease)} is on the cluster, and no controller renews it: start the cluster's coil-ipam-controller, which the lab will use, or remove the Lease`,
    );
  }
  await refuseUnmanaged(api, { signal });
  return "own";
}

/** Refuses pools of others without a controller of the cluster: the lab's controller would then manage them. */
async function refuseUnmanaged(api: Pick<KubeApi, "list">, { signal }: AbortOptions): Promise<void> {
  for (const type of [coilResources.addressPools, coilResources.addressBlocks, coilResources.blockRequests] as const) {
    const page = await api.list<KubeObject>(type, { limit: 1, signal }).catch(noneWithoutType);
    const [found] = page.items;
    if (found === undefined) continue;
    throw new OwnershipError(
      "not-ours",
      `${type.kind} ${found.metadata.name} is on the cluster, and no coil-ipam-controller leads there: the lab's controller would manage this object; start the cluster's controller, or remove the object`,
    );
  }
}

/** Returns an empty list if the error says that the server does not have the type. */
export function noneWithoutType(error: unknown): { readonly items: never[] } {
  if (isKubeError(error, "not-found")) return { items: [] };
  throw error;
}
