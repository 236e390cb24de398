import type { AbortOptions } from "#base/async";
import type { Logger } from "#base/log";
import { type KubeApi, resources } from "#kube/client";
import { subjectsOf } from "./children.ts";

/**
 * Makes the subjects of a ClusterRoleBinding exactly the routers' accounts of `namespaces`. Rejects with `KubeError`: `not-found` for the first of
 * `ROUTER_BINDINGS`, which the manifests bring; the controller has no right to create it.
 */
export async function reconcileBinding(
  deps: { readonly api: KubeApi; readonly log: Logger },
  name: string,
  namespaces: Iterable<string>,
  options: AbortOptions,
): Promise<void> {
  const binding = await deps.api.get(resources.clusterRoleBindings, { name }, options);
  const wanted = subjectsOf(namespaces);
  const text = (subjects: readonly { kind?: string; name?: string; namespace?: string }[]): string =>
    JSON.stringify(subjects.map(({ kind, name: of, namespace }) => [kind, of, namespace]));
  if (text(binding.subjects ?? []) === text(wanted)) return;
  await deps.api.replace(resources.clusterRoleBindings, { ...binding, subjects: wanted }, options);
  deps.log.info("subjects of the routers' ClusterRoleBinding changed", { name, subjects: wanted.length });
}
