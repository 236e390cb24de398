import type { AbortOptions } from "#base/async";
import { type KubeApi, type KubeObject, type ResourceType, resources } from "#kube/client";
import { COIL_FINALIZER, coilResources, DEFAULT_POOL, POOL_ANNOTATION } from "#kube/coil";
import { applyObject, type Manifest } from "./apply-object.ts";
import type { Scenario, ScenarioWorkload } from "./default.ts";

/** Puts the scenario on the cluster by server-side apply; repeating it changes nothing. Rejects with `KubeError`. */
export async function applyScenario(api: KubeApi, scenario: Scenario, options: AbortOptions): Promise<void> {
  const apply = <T extends KubeObject>(type: ResourceType<T>, body: Manifest): Promise<void> =>
    applyObject(api, type, body, options);
  for (const pool of scenario.pools) {
    await apply(coilResources.addressPools, {
      apiVersion: "coil.cybozu.com/v2",
      kind: "AddressPool",
      metadata: { name: pool.name, finalizers: [COIL_FINALIZER] },
      spec: { blockSizeBits: pool.blockSizeBits, subnets: pool.subnets },
    });
  }
  for (const workload of scenario.workloads) {
    const annotations = workload.pool === DEFAULT_POOL ? {} : { [POOL_ANNOTATION]: workload.pool };
    await apply(resources.namespaces, {
      apiVersion: "v1",
      kind: "Namespace",
      metadata: { name: workload.namespace, annotations },
    });
    await apply(resources.deployments, deploymentOf(workload));
  }
}

function deploymentOf({ namespace, name, replicas }: ScenarioWorkload): Manifest {
  const labels = { app: name };
  return {
    apiVersion: "apps/v1",
    kind: "Deployment",
    metadata: { name, namespace },
    spec: {
      replicas,
      selector: { matchLabels: labels },
      template: {
        metadata: { labels },
        spec: { containers: [{ name: "main", image: "lab.isthmus.dev/pause" }], terminationGracePeriodSeconds: 0 },
      },
    },
  };
}
