import type { AbortOptions } from "#base/async";
import { findObject, isKubeError, type KubeApi, type KubeObject, type ResourceType, resources } from "#kube/client";
import { coilResources, ROUTER_BINDINGS } from "#kube/coil";
import { EGRESS_SERVICES } from "../client/index.ts";
import { auditEgress, type EgressAudit } from "./audit.ts";
import type { EgressNode } from "./state.ts";

type Note = (text: string) => void;

/** `undefined`: there is no such type, or these credentials may not list them. */
async function readEgresses(api: KubeApi, { note, ...at }: AbortOptions & { readonly note: Note }) {
  try {
    return (await api.listAll(coilResources.egresses, at)).items;
  } catch (error) {
    if (!isKubeError(error, "not-found", "forbidden")) throw error;
    note(
      error.code === "not-found"
        ? "Egress NAT is not compared: the cluster has no type Egress (coil.cybozu.com/v2)"
        : `Egress NAT is not compared: ${error.message}`,
    );
    return undefined;
  }
}

/**
 * Reads what belongs to Egresses and compares it with the nodes that `inspect` returns. What these credentials may not list is told by `note` and left out. `undefined`: there is
 * nothing to compare with. Rejects with `KubeError`.
 */
export async function auditEgressCluster(
  api: KubeApi,
  inspect: () => Promise<readonly EgressNode[]>,
  options: AbortOptions & { readonly note: Note },
): Promise<EgressAudit | undefined> {
  const egresses = await readEgresses(api, options);
  if (egresses === undefined) return undefined;
  const { note, ...at } = options;
  const nodes = await inspect();
  const mayBe = async <T>(what: string, read: () => Promise<T>): Promise<T | undefined> => {
    try {
      return await read();
    } catch (error) {
      if (!isKubeError(error, "forbidden")) throw error;
      note(`${what} are not compared: ${error.message}`);
      return undefined;
    }
  };
  const listOf = <T extends KubeObject>(what: string, type: ResourceType<T>): Promise<readonly T[] | undefined> =>
    mayBe(what, async () => (await api.listAll(type, { ...at, labelSelector: EGRESS_SERVICES })).items);
  const namespaces = [...new Set(egresses.map(({ metadata }) => metadata.namespace ?? ""))];
  const [pods, spaces, services, deployments, slices, bindings] = await Promise.all([
    api.listAll(resources.pods, at),
    mayBe("permissions and selectors of Egresses", async () => (await api.listAll(resources.namespaces, at)).items),
    listOf("Services of Egresses, and so clients,", resources.services),
    listOf("Deployments of Egresses", resources.deployments),
    mayBe("endpoints of Egresses", async () => {
      const lists = namespaces.map((namespace) =>
        api.listAll(resources.endpointSlices, { ...at, namespace, labelSelector: "kubernetes.io/service-name" }),
      );
      return (await Promise.all(lists)).flatMap(({ items }) => items);
    }),
    mayBe("rights of routers", async () => {
      const found = await Promise.all(
        ROUTER_BINDINGS.map((name) => findObject(api, resources.clusterRoleBindings, { name }, at)),
      );
      return found.flatMap((one) => one ?? []);
    }),
  ]);
  return auditEgress({
    egresses,
    pods: pods.items,
    namespaces: spaces,
    services,
    deployments,
    slices,
    bindings,
    nodes,
  });
}
