import { routerEgress } from "#kube/coil";
import {
  type AccessNamespace,
  type AccessPod,
  type EgressAccess,
  type EgressRef,
  type EgressUse,
  egressUse,
  groupsFor,
  selects,
} from "./access.ts";

/** An Egress that a pod names or that selects it, and whether the pod may use it. */
export interface PodUse {
  readonly egress: EgressRef;
  readonly use: Exclude<EgressUse, { readonly kind: "none" }>;
}

/** The Egresses of the cluster, as far as they are known. */
export interface AccessSource {
  readonly get: (ref: EgressRef) => EgressAccess | undefined;
  readonly all: () => Iterable<EgressAccess>;
}

/** An Egress whose `spec.clients` reach a namespace. */
interface Reach {
  readonly egress: EgressAccess;
  readonly groups: ReturnType<typeof groupsFor>;
}

/**
 * The Egresses that pods use, from many Egresses. For each namespace it holds the Egresses whose `spec.clients` reach it, until {@link AccessIndex.changed}
 * or another state of the Namespace: then a pod costs its own names and the entries that reach its namespace, not all Egresses.
 * Holds at most one entry for each namespace for which it was asked, until {@link AccessIndex.forget}.
 */
export class AccessIndex {
  readonly #source: AccessSource;
  /** The reach of each namespace, by its name. */
  readonly #reach = new Map<string, { readonly of: AccessNamespace | undefined; readonly reach: readonly Reach[] }>();
  #selecting: readonly EgressAccess[] | undefined;

  constructor(source: AccessSource) {
    this.#source = source;
  }

  /** Must be called after an Egress was added or removed, or has another {@link EgressAccess.text}. */
  changed(): void {
    this.#selecting = undefined;
    this.#reach.clear();
  }

  /** Must be called after a Namespace is gone. */
  forget(namespace: string): void {
    this.#reach.delete(namespace);
  }

  /**
   * The Egresses that a pod names and that exist, then those that select it; each part sorted by namespace and name. `namespace` is the pod's
   * Namespace, `undefined` while it is not known.
   */
  usesOf(pod: AccessPod, namespace: AccessNamespace | undefined): readonly PodUse[] {
    if (routerEgress(pod.labels) !== undefined) return [];
    const uses: PodUse[] = [];
    for (const [ofNamespace, names] of pod.named) {
      for (const name of names) {
        const egress = this.#source.get({ namespace: ofNamespace, name });
        const use = egress === undefined ? undefined : egressUse(egress, pod, namespace);
        if (egress !== undefined && use !== undefined && use.kind !== "none") uses.push({ egress, use });
      }
    }
    uses.sort((a, b) => compareRefs(a.egress, b.egress));
    for (const { egress, groups } of this.#reachOf(pod.namespace, namespace)) {
      if (pod.named.get(egress.namespace)?.includes(egress.name) === true) continue;
      const group = groups.find((one) => selects(one, pod));
      if (group !== undefined) uses.push({ egress, use: group.use });
    }
    return uses;
  }

  #reachOf(name: string, namespace: AccessNamespace | undefined): readonly Reach[] {
    const known = this.#reach.get(name);
    if (known !== undefined && known.of === namespace) return known.reach;
    this.#selecting ??= [...this.#source.all()].filter(({ entries }) => entries.length > 0).sort(compareRefs);
    const reach = this.#selecting.flatMap((egress) => {
      const groups = groupsFor(egress, name, namespace);
      return groups.length === 0 ? [] : [{ egress, groups }];
    });
    this.#reach.set(name, { of: namespace, reach });
    return reach;
  }
}

/** {@link AccessIndex.usesOf} of a set of Egresses that does not change. `namespaceOf` must return the same object for a name each time. */
export function usesFrom(
  accesses: readonly EgressAccess[],
  namespaceOf: (name: string) => AccessNamespace | undefined,
): (pod: AccessPod) => readonly PodUse[] {
  const byKey = new Map(accesses.map((one) => [`${one.namespace}/${one.name}`, one]));
  const index = new AccessIndex({
    get: ({ namespace, name }) => byKey.get(`${namespace}/${name}`),
    all: () => accesses,
  });
  return (pod) => index.usesOf(pod, namespaceOf(pod.namespace));
}

/** Pure: the order of Egresses: by namespace, then by name. */
export function compareRefs(a: EgressRef, b: EgressRef): number {
  return compare(a.namespace, b.namespace) || compare(a.name, b.name);
}

const compare = (a: string, b: string): number => (a < b ? -1 : a > b ? 1 : 0);
