import type { Node, Pod } from "#kube/client";

/** The part of a node that scheduling looks at. */
export type Schedulable = Pick<Node, "metadata" | "spec" | "status">;

/**
 * Pure: the ready node with the fewest pods that the pod's nodeSelector allows; ties by name in natural order.
 * `undefined` when there is none.
 */
export function chooseNode(
  pod: Pick<Pod, "spec">,
  nodes: Iterable<Schedulable>,
  podsPerNode: ReadonlyMap<string, number>,
): string | undefined {
  return [...nodes]
    .filter((node) => isEligible(pod, node))
    .map((node) => ({ name: node.metadata.name, pods: podsPerNode.get(node.metadata.name) ?? 0 }))
    .sort((a, b) => a.pods - b.pods || a.name.localeCompare(b.name, "en", { numeric: true }))[0]?.name;
}

/** Whether a pod may run on a node. */
export function isEligible(pod: Pick<Pod, "spec">, node: Schedulable): boolean {
  if (node.spec?.unschedulable === true) return false;
  if (node.status?.conditions?.some((condition) => condition.type === "Ready" && condition.status !== "True") === true)
    return false;
  const labels = node.metadata.labels ?? {};
  return Object.entries(pod.spec?.nodeSelector ?? {}).every(([key, value]) => labels[key] === value);
}
