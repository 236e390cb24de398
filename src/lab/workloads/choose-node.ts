import type { Node, Pod } from "#kube/client";

/** The part of a node that scheduling reads. */
export type Schedulable = Pick<Node, "metadata" | "spec" | "status">;

/** A pod that is bound to a node, and the UID of its controller. */
export interface PlacedPod {
  readonly node: string;
  readonly owner: string | undefined;
}

/**
 * Pure: of the ready nodes that the pod's nodeSelector and tolerations allow, the one with the fewest pods of the same owner, then with the
 * fewest pods; ties by name in natural order. `undefined` if no node is allowed.
 */
export function chooseNode(
  pod: Pick<Pod, "metadata" | "spec">,
  nodes: Iterable<Schedulable>,
  placed: readonly PlacedPod[],
): string | undefined {
  const owner = ownerOf(pod);
  const count = (at: readonly PlacedPod[]): Map<string, number> => {
    const counts = new Map<string, number>();
    for (const { node } of at) counts.set(node, (counts.get(node) ?? 0) + 1);
    return counts;
  };
  const all = count(placed);
  const peers = count(owner === undefined ? [] : placed.filter((one) => one.owner === owner));
  return [...nodes]
    .filter((node) => isEligible(pod, node))
    .map(({ metadata: { name } }) => ({ name, peers: peers.get(name) ?? 0, pods: all.get(name) ?? 0 }))
    .sort((a, b) => a.peers - b.peers || a.pods - b.pods || a.name.localeCompare(b.name, "en", { numeric: true }))[0]
    ?.name;
}

/** The UID of the controller that a pod belongs to. */
export function ownerOf({ metadata }: Pick<Pod, "metadata">): string | undefined {
  return metadata.ownerReferences?.find(({ controller }) => controller === true)?.uid;
}

/** Whether a pod may run on a node. */
export function isEligible(pod: Pick<Pod, "spec">, node: Schedulable): boolean {
  if (node.spec?.unschedulable === true) return false;
  if (node.status?.conditions?.some((condition) => condition.type === "Ready" && condition.status !== "True") === true)
    return false;
  const keepsOff = (taint: Taint): boolean => taint.effect !== "PreferNoSchedule" && !isTolerated(pod, taint);
  if (node.spec?.taints?.some(keepsOff) === true) return false;
  const labels = node.metadata.labels ?? {};
  return Object.entries(pod.spec?.nodeSelector ?? {}).every(([key, value]) => labels[key] === value);
}

type Taint = NonNullable<NonNullable<Node["spec"]>["taints"]>[number];

/** Whether the pod tolerates the taint. As in Kubernetes, `Exists` without a key means every key, no effect means every effect. */
function isTolerated({ spec }: Pick<Pod, "spec">, taint: Taint): boolean {
  return (spec?.tolerations ?? []).some(
    ({ key = "", operator = "Equal", value = "", effect = "" }) =>
      (effect === "" || effect === taint.effect) &&
      (key === "" ? operator === "Exists" : key === taint.key) &&
      (operator === "Exists" || value === (taint.value ?? "")),
  );
}
