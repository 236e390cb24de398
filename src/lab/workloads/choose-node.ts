import type { Node, Pod } from "#kube/client";

/** The part of a node that scheduling reads. */
export type Schedulable = Pick<Node, "metadata" | "spec" | "status">;

/** A pod that is bound to a node, and the UID of its controller. */
export interface PlacedPod {
  readonly node: string;
  readonly owner: string | undefined;
}

/**
 * Pure: of the ready nodes that the pod's nodeSelector, required node affinity and tolerations allow, the one with the fewest pods of the same owner, then with the
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

/** Returns true if a pod may run on a node. */
export function isEligible(pod: Pick<Pod, "spec">, node: Schedulable): boolean {
  if (node.spec?.unschedulable === true) return false;
  if (node.status?.conditions?.some((condition) => condition.type === "Ready" && condition.status !== "True") === true)
    return false;
  const keepsOff = (taint: Taint): boolean => taint.effect !== "PreferNoSchedule" && !isTolerated(pod, taint);
  if (node.spec?.taints?.some(keepsOff) === true) return false;
  const labels = node.metadata.labels ?? {};
  if (!Object.entries(pod.spec?.nodeSelector ?? {}).every(([key, value]) => labels[key] === value)) return false;
  const terms = pod.spec?.affinity?.nodeAffinity?.requiredDuringSchedulingIgnoredDuringExecution?.nodeSelectorTerms;
  // One term is enough; one without expressions matches no node.
  return (
    terms?.some(
      ({ matchExpressions = [] }) => matchExpressions.length > 0 && matchExpressions.every((one) => holds(one, labels)),
    ) ?? true
  );
}

type Expression = NonNullable<
  NonNullable<
    NonNullable<
      NonNullable<NonNullable<Pod["spec"]>["affinity"]>["nodeAffinity"]
    >["requiredDuringSchedulingIgnoredDuringExecution"]
  >["nodeSelectorTerms"][number]["matchExpressions"]
>[number];

/** Returns true if the labels of a node fulfil an expression of a required node affinity. The operators for numbers hold for no node of a lab. */
function holds({ key, operator, values = [] }: Expression, labels: Readonly<Record<string, string>>): boolean {
  const value = labels[key];
  switch (operator) {
    case "Exists":
      return value !== undefined;
    case "DoesNotExist":
      return value === undefined;
    case "In":
      return value !== undefined && values.includes(value);
    case "NotIn":
      return value === undefined || !values.includes(value);
    default:
      return false;
  }
}

type Taint = NonNullable<NonNullable<Node["spec"]>["taints"]>[number];

/** Returns true if the pod tolerates the taint. As in Kubernetes, `Exists` without a key means every key, no effect means every effect. */
function isTolerated({ spec }: Pick<Pod, "spec">, taint: Taint): boolean {
  return (spec?.tolerations ?? []).some(
    ({ key = "", operator = "Equal", value = "", effect = "" }) =>
      (effect === "" || effect === taint.effect) &&
      (key === "" ? operator === "Exists" : key === taint.key) &&
      (operator === "Exists" || value === (taint.value ?? "")),
  );
}
