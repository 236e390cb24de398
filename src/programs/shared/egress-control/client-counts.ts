import { Dirty, TimeSlice } from "#base/async";
import type { Clock } from "#base/clock";
import { repeat } from "#base/reconcile";
import {
  AccessIndex,
  type AccessNamespace,
  type AccessPod,
  accessNamespace,
  accessPod,
  type EgressAccess,
  egressAccess,
} from "#features/egress";
import type { Namespace, Pod, StoredMeta } from "#kube/client";
import { type Egress, routerEgress } from "#kube/coil";
import type { Informer } from "#kube/informer";

/** After a pass, changes of this time are counted together, milliseconds: a status is written this often at most. */
const PAUSE_MS = 2000;

/** Without a change the loop wakes this often, milliseconds, and finds nothing to do. */
const IDLE_MS = 3_600_000;

type Kept = Pick<StoredMeta, "name" | "namespace" | "uid" | "resourceVersion">;

/** A Pod as its use of Egresses is counted. */
export interface CountedPod extends AccessPod {
  readonly metadata: Kept;
  /** False if the pod has no network of its own, or has ended. */
  readonly hasNetwork: boolean;
}

/** A Namespace as the use of Egresses is counted. */
export interface CountedNamespace extends AccessNamespace {
  readonly metadata: Kept;
}

const keptMeta = ({ name, namespace, uid, resourceVersion }: StoredMeta): Kept => ({
  name,
  uid,
  resourceVersion,
  ...(namespace === undefined ? {} : { namespace }),
});

/** Pure: the view of a Pod. */
export function countedPod({ metadata, spec, status }: Pod): CountedPod {
  const { namespace = "", labels, annotations } = metadata;
  const hasEnded = status?.phase === "Succeeded" || status?.phase === "Failed";
  return {
    ...accessPod({ namespace, labels, annotations }),
    metadata: keptMeta(metadata),
    hasNetwork: spec?.hostNetwork !== true && !hasEnded && routerEgress(labels) === undefined,
  };
}

/** Pure: the view of a Namespace. */
export function countedNamespace(namespace: Namespace): CountedNamespace {
  return { ...accessNamespace(namespace), metadata: keptMeta(namespace.metadata) };
}

/** The index of the store of pods. */
export const COUNTED_POD_INDEXES = { namespace: ({ namespace }: CountedPod) => [namespace] };

interface Count {
  clients: number;
  refused: number;
}

/** The Egresses of one pod, by `namespace/name`. */
type Uses = ReadonlyMap<string, keyof Count>;

/**
 * The number of pods that use each Egress, and of those that may not. A change of a pod costs that pod, one of a Namespace the pods there, and one of the rules of an Egress all
 * pods. It holds an entry for each pod that uses, or may not use, an Egress.
 */
export class ClientCounts {
  readonly #parts: ConstructorParameters<typeof ClientCounts>[0];
  readonly #index: AccessIndex;
  /** The compiled rules, by the key of the Egress. */
  readonly #accesses = new Map<string, EgressAccess>();
  readonly #uses = new Map<string, Uses>();
  readonly #counts = new Map<string, Count>();
  readonly #dirty: Dirty;
  readonly #pods = new Set<string>();
  readonly #namespaces = new Set<string>();
  #isAll = true;
  #isKnown = false;

  constructor(parts: {
    readonly egresses: Informer<Egress, Egress>;
    readonly pods: Informer<Pod, CountedPod>;
    readonly namespaces: Informer<Namespace, CountedNamespace>;
    /** Called with the keys of Egresses whose numbers have changed. */
    readonly onChange: (key: string) => void;
    readonly clock: Clock;
  }) {
    this.#parts = parts;
    this.#dirty = new Dirty(parts.clock);
    this.#index = new AccessIndex({
      get: ({ namespace, name }) => this.#accesses.get(`${namespace}/${name}`),
      all: () => this.#accesses.values(),
    });
    const { egresses, pods, namespaces } = parts;
    const egress = (one: Egress): void => this.#setEgress(one);
    egresses.addHandler({
      onAdd: egress,
      onUpdate: (_before, after) => egress(after),
      onDelete: ({ metadata: { namespace = "", name } }) => {
        if (!this.#accesses.delete(`${namespace}/${name}`)) return;
        this.#index.changed();
        this.#markAll();
      },
    });
    const pod = ({ namespace, metadata: { name } }: CountedPod): void => {
      this.#pods.add(`${namespace}/${name}`);
      this.#dirty.mark("pod");
    };
    pods.addHandler({ onAdd: pod, onUpdate: (_before, after) => pod(after), onDelete: pod });
    const namespace = ({ name }: CountedNamespace): void => {
      this.#namespaces.add(name);
      this.#dirty.mark("namespace");
    };
    namespaces.addHandler({
      onAdd: namespace,
      onUpdate: (_before, after) => namespace(after),
      onDelete: (one) => {
        this.#index.forget(one.name);
        namespace(one);
      },
    });
  }

  /** The numbers of an Egress, by `namespace/name`; `undefined` before all pods and Namespaces were read. */
  of(key: string): Readonly<Count> | undefined {
    return this.#isKnown ? (this.#counts.get(key) ?? { clients: 0, refused: 0 }) : undefined;
  }

  /** Counts until the signal aborts. */
  async run({ signal }: { readonly signal: AbortSignal }): Promise<void> {
    const { egresses, pods, namespaces, clock, onChange } = this.#parts;
    const count = async (): Promise<void> => {
      const isFirst = !this.#isKnown;
      const changed = await this.#count();
      this.#isKnown = true;
      for (const key of isFirst ? this.#accesses.keys() : changed) onChange(key);
    };
    const timing = { everyMs: IDLE_MS, pace: { minMs: PAUSE_MS }, dirty: this.#dirty, clock };
    await repeat(count, { signal, inputs: { egresses, pods, namespaces }, ...timing });
  }

  #setEgress(egress: Egress): void {
    const { namespace = "", name } = egress.metadata;
    const key = `${namespace}/${name}`;
    const access = egressAccess(egress);
    if (this.#accesses.get(key)?.text === access.text) return;
    this.#accesses.set(key, access);
    this.#index.changed();
    this.#markAll();
  }

  #markAll(): void {
    this.#isAll = true;
    this.#dirty.mark("all pods");
  }

  /** Counts what was marked; returns the keys of Egresses whose numbers have changed. */
  async #count(): Promise<ReadonlySet<string>> {
    const { pods } = this.#parts;
    const keys = new Set(this.#isAll ? [...this.#uses.keys(), ...pods.store.keys()] : this.#pods);
    for (const namespace of this.#namespaces)
      for (const { metadata } of pods.store.byIndex("namespace", namespace)) keys.add(`${namespace}/${metadata.name}`);
    this.#isAll = false;
    this.#pods.clear();
    this.#namespaces.clear();
    const changed = new Set<string>();
    const slice = new TimeSlice();
    for (const key of keys) {
      if (slice.isOver) await slice.yield();
      this.#setUses(key, this.#usesOf(pods.store.getByKey(key)), changed);
    }
    return changed;
  }

  #usesOf(pod: CountedPod | undefined): Uses {
    if (pod === undefined || !pod.hasNetwork) return new Map();
    const namespace = this.#parts.namespaces.store.getByKey(pod.namespace);
    return new Map(
      this.#index
        .usesOf(pod, namespace)
        .map(({ egress, use }) => [
          `${egress.namespace}/${egress.name}`,
          use.kind === "client" ? ("clients" as const) : ("refused" as const),
        ]),
    );
  }

  #setUses(key: string, after: Uses, changed: Set<string>): void {
    const before = this.#uses.get(key) ?? new Map<string, keyof Count>();
    if (after.size === 0) this.#uses.delete(key);
    else this.#uses.set(key, after);
    const add = (egress: string, kind: keyof Count, by: 1 | -1): void => {
      const count = this.#counts.get(egress) ?? { clients: 0, refused: 0 };
      count[kind] += by;
      changed.add(egress);
      if (count.clients + count.refused === 0) this.#counts.delete(egress);
      else this.#counts.set(egress, count);
    };
    for (const [egress, kind] of before) if (after.get(egress) !== kind) add(egress, kind, -1);
    for (const [egress, kind] of after) if (before.get(egress) !== kind) add(egress, kind, 1);
  }
}
