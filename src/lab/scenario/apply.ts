import type { AbortOptions } from "#base/async";
import { type Deployment, type Draft, type KubeApi, resources } from "#kube/client";
import { COIL_FINALIZER, coilResources, DEFAULT_POOL, POOL_ANNOTATION, parsePool, subnetsOverlap } from "#kube/coil";
import { createOwn, isOwn, type LabIdentity, OwnershipError, podPlacement } from "#lab/ownership";
import type { Scenario, ScenarioPool, ScenarioWorkload } from "./default.ts";

/**
 * Creates the objects of the scenario. Objects that this run has created already stay. Rejects with `OwnershipError` if an object of
 * others has the name of one, and with `KubeError`.
 */
export async function applyScenario(api: KubeApi, scenario: Scenario, options: AbortOptions): Promise<void> {
  const { identity } = scenario;
  if (identity.isGuest) await refuseOverlap(api, scenario, options);
  for (const pool of scenario.pools) {
    const draft = {
      metadata: { name: pool.name, finalizers: [COIL_FINALIZER] },
      spec: { blockSizeBits: pool.blockSizeBits, subnets: [...pool.subnets] },
    };
    await createOwn(api, identity, coilResources.addressPools, draft, options);
  }
  for (const workload of scenario.workloads) {
    await makeNamespace(api, identity, { name: workload.namespace, pool: workload.pool }, options);
    await createOwn(api, identity, resources.deployments, deploymentOf(workload, identity), options);
  }
}

/**
 * Creates a namespace whose pods get addresses of a pool. An API server refuses its pods until the cluster's controllers have created a
 * service account; the controllers of Deployments try again until then. Rejects with `OwnershipError` and `KubeError`.
 */
export async function makeNamespace(
  api: KubeApi,
  identity: LabIdentity,
  { name, pool }: { readonly name: string; readonly pool: string },
  options: AbortOptions,
): Promise<void> {
  const annotations = pool === DEFAULT_POOL ? {} : { [POOL_ANNOTATION]: pool };
  await createOwn(api, identity, resources.namespaces, { metadata: { name, annotations } }, options);
}

/** Refuses pools that overlap an existing pool: two pools with a common address could assign it to two pods. */
async function refuseOverlap(api: KubeApi, { identity, pools }: Scenario, options: AbortOptions): Promise<void> {
  const wanted = pools.flatMap((pool) => parsePool({ subnets: [...pool.subnets] }).subnets);
  for (const found of (await api.listAll(coilResources.addressPools, options)).items) {
    if (isOwn(identity, found) || found.spec === undefined) continue;
    const taken = parsePool(found.spec).subnets;
    if (!wanted.some((one) => taken.some((other) => subnetsOverlap(one, other)))) continue;
    throw new OwnershipError(
      "not-ours",
      `AddressPool ${found.metadata.name} is on the cluster and has addresses of the lab's subnets (${subnetsOf(pools)}): the lab does not change it; use a cluster without this pool`,
    );
  }
}

function subnetsOf(pools: readonly ScenarioPool[]): string {
  return pools.flatMap(({ subnets }) => subnets.flatMap(({ ipv4, ipv6 }) => [ipv4, ipv6].filter(Boolean))).join(", ");
}

function deploymentOf({ namespace, name, replicas }: ScenarioWorkload, identity: LabIdentity): Draft<Deployment> {
  const labels = { app: name };
  return {
    metadata: { name, namespace },
    spec: {
      replicas,
      selector: { matchLabels: labels },
      template: {
        metadata: { labels },
        spec: {
          containers: [{ name: "main", image: "lab.isthmus.dev/pause" }],
          terminationGracePeriodSeconds: 0,
          ...podPlacement(identity, labels),
        },
      },
    },
  };
}
