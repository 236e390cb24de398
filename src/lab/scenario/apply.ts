import type { AbortOptions } from "#base/async";
import { type KubeApi, type KubeObject, type ResourceType, resources } from "#kube/client";
import { COIL_FINALIZER, coilResources, DEFAULT_POOL, POOL_ANNOTATION } from "#kube/coil";
import type { Scenario, ScenarioWorkload } from "./default.ts";

const FIELD_MANAGER = "isthmus-lab";

/** Puts the scenario on the cluster by server-side apply; repeating it changes nothing. Rejects with `KubeError`. */
export async function applyScenario(api: KubeApi, scenario: Scenario, options: AbortOptions): Promise<void> {
  const apply = async <T extends KubeObject>(
    type: ResourceType<T>,
    body: { readonly metadata: { readonly name: string; readonly namespace?: string } },
  ) => {
    const { name, namespace } = body.metadata;
    await api.patch(
      type,
      { name, namespace },
      { type: "apply", body, fieldManager: FIELD_MANAGER, force: true },
      options,
    );
  };
  for (const pool of scenario.pools) {
    await apply(coilResources.addressPools, {
      apiVersion: "coil.cybozu.com/v2",
      kind: "AddressPool",
      metadata: { name: pool.name, finalizers: [COIL_FINALIZER] },
      spec: { blockSizeBits: pool.blockSizeBits, subnets: pool.subnets },
    } as never);
  }
  for (const workload of scenario.workloads) {
    const annotations = workload.pool === DEFAULT_POOL ? {} : { [POOL_ANNOTATION]: workload.pool };
    await apply(resources.namespaces, {
      apiVersion: "v1",
      kind: "Namespace",
      metadata: { name: workload.namespace, annotations },
    } as never);
    await apply(resources.deployments, deploymentOf(workload) as never);
  }
}

function deploymentOf({ namespace, name, replicas }: ScenarioWorkload): object {
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
