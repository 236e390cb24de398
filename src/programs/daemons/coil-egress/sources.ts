import { Deferred, TaskGroup, unlessAborted } from "#base/async";
import type { Clock } from "#base/clock";
import type { Health } from "#base/health";
import type { Cidr } from "#base/ip";
import type { Logger } from "#base/log";
import {
  type AccessNamespace,
  type Admission,
  accessNamespace,
  addressOwners,
  admitClients,
  type ClientEgress,
  clientEgress,
  type EgressRef,
  egressAccess,
  OWNER_INDEXES,
  type OwnerBlock,
  type OwnerPool,
  ownerBlock,
  ownerPool,
  type RouterClient,
  routerClient,
  sameCandidate,
} from "#features/egress";
import { type KubeApi, type Namespace, type Pod, resources, type StoredMeta } from "#kube/client";
import { type AddressBlock, type AddressPool, coilResources, type Egress } from "#kube/coil";
import { createInformer, type Informer, type InformerHealth } from "#kube/informer";
import { informerHealth } from "../../shared/daemon/index.ts";
import { OptionalWatch } from "./optional-watch.ts";

/** Checks that a router leaves out if its account may not read the objects, by the label of the metric. */
export const CHECKS = ["egress", "namespaces", "blocks"] as const;
export type Check = (typeof CHECKS)[number];

/** A Namespace as the rules of access need it. */
interface NamespaceView extends AccessNamespace {
  readonly metadata: Pick<StoredMeta, "name" | "uid" | "resourceVersion">;
}

/** Finds the clients of a router in the objects of the API server. */
export class RouterSources {
  readonly #egress: OptionalWatch<Egress, ClientEgress>;
  readonly #namespaces: OptionalWatch<Namespace, NamespaceView>;
  readonly #pools: OptionalWatch<AddressPool, OwnerPool>;
  readonly #blocks: OptionalWatch<AddressBlock, OwnerBlock>;
  /** In force; replaced by one that keeps labels when the Egress begins to choose pods by them. */
  #pods: Informer<Pod, RouterClient> | undefined;
  #hasLabels = false;
  /** Ends {@link RouterSources.#pods}. */
  #endPods: AbortController | undefined;
  /** Settles when the pods that were opened last are in force. */
  #opening: Promise<void> = Promise.resolve();
  readonly #onPodsHealth: (state: InformerHealth) => void;
  #reported = "";
  readonly #parts: ConstructorParameters<typeof RouterSources>[0];
  readonly #ref: EgressRef;

  constructor(
    parts: {
      readonly api: KubeApi;
      readonly health: Health;
      readonly log: Logger;
      /** Called when another answer of {@link RouterSources.admission} or {@link RouterSources.destinations} is possible. */
      readonly onChange: () => void;
      readonly clock: Clock;
    },
    ref: EgressRef,
  ) {
    this.#parts = parts;
    this.#ref = ref;
    this.#onPodsHealth = informerHealth(parts.health, "pods");
    const { api, health, onChange, clock } = parts;
    const optional = (plural: string) => ({
      api,
      clock,
      health: health.part(`watch-${plural}`),
      // Every role has the right to pods.
      isBound: () => this.#pods !== undefined,
      onState: () => {
        this.#report();
        onChange();
      },
    });
    this.#egress = new OptionalWatch(optional("egresses"), coilResources.egresses, {
      namespace: ref.namespace,
      fieldSelector: `metadata.name=${ref.name}`,
      transform: clientEgress,
    });
    this.#namespaces = new OptionalWatch(optional("namespaces"), resources.namespaces, { transform: namespaceView });
    this.#pools = new OptionalWatch(optional("addresspools"), coilResources.addressPools, { transform: ownerPool });
    this.#blocks = new OptionalWatch(optional("addressblocks"), coilResources.addressBlocks, {
      transform: ownerBlock,
      indexers: OWNER_INDEXES,
    });
    const egressText = ({ destinations, access }: ClientEgress): string => `${destinations.join()} ${access.text}`;
    const all = { onAdd: onChange, onDelete: onChange };
    this.#egress.informer.addHandler({ ...all, onUpdate: (a, b) => egressText(a) !== egressText(b) && onChange() });
    const accessText = ({ labels, clientsOf }: NamespaceView): string => JSON.stringify([labels, clientsOf]);
    this.#namespaces.informer.addHandler({ ...all, onUpdate: (a, b) => accessText(a) !== accessText(b) && onChange() });
    const poolText = ({ layout }: OwnerPool): string => JSON.stringify(layout);
    this.#pools.informer.addHandler({ ...all, onUpdate: (a, b) => poolText(a) !== poolText(b) && onChange() });
    const blockText = ({ node, prefixes }: OwnerBlock): string => `${node} ${prefixes.join()}`;
    this.#blocks.informer.addHandler({ ...all, onUpdate: (a, b) => blockText(a) !== blockText(b) && onChange() });
  }

  /** Follows the API server until the signal aborts. Rejects only for a bug. */
  async run({ signal }: { readonly signal: AbortSignal }): Promise<void> {
    const group = new TaskGroup(signal);
    for (const { informer } of [this.#egress, this.#namespaces, this.#pools, this.#blocks])
      group.spawn((at) => informer.run({ signal: at }));
    this.#openPods(group, false);
    // The form of the pods depends on the Egress.
    const reopen = (): void => {
      if (this.#choosesPods && !this.#hasLabels) this.#openPods(group, true);
    };
    this.#egress.informer.addHandler({ onAdd: reopen, onUpdate: reopen });
    await group.wait();
  }

  /** Resolves when everything was read that this account may read. Rejects when the signal aborts. */
  async known({ signal }: { readonly signal: AbortSignal }): Promise<void> {
    const optional = [this.#egress, this.#namespaces, this.#pools, this.#blocks].map(({ settled }) => settled);
    await unlessAborted(Promise.all(optional), { signal });
    // The Egress is known by now, so these are the pods in the form that it needs.
    await unlessAborted(this.#opening, { signal });
  }

  /** The pods that may use the Egress, with the addresses that they can have. */
  admission(): Admission {
    const { state, informer } = this.#egress;
    // Without the right to read the Egress an annotation is enough, as in Coil.
    const anybody = egressAccess({ metadata: this.#ref });
    const blocks = this.#blocks.informer.store;
    return admitClients(this.#pods?.store.values() ?? [], {
      access: state === "refused" ? anybody : informer.store.get(this.#ref.name, this.#ref.namespace)?.access,
      namespace: (name) => this.#namespaces.informer.store.get(name),
      isOfNode: this.#checks("blocks")
        ? addressOwners(this.#pools.informer.store.list(), (prefix) => blocks.byIndex("prefix", prefix))
        : () => true,
    });
  }

  /** The destinations of the Egress, none if it is gone; `undefined`: the account may not read them. */
  destinations(): readonly Cidr[] | undefined {
    if (!this.#checks("egress")) return undefined;
    return this.#egress.informer.store.get(this.#ref.name, this.#ref.namespace)?.destinations ?? [];
  }

  /** The checks that the router cannot make, because its account may not read the objects. */
  get unchecked(): readonly Check[] {
    return CHECKS.filter((check) => !this.#checks(check));
  }

  #checks(check: Check): boolean {
    const watches = { egress: [this.#egress], namespaces: [this.#namespaces], blocks: [this.#pools, this.#blocks] };
    return watches[check].every(({ state }) => state !== "refused");
  }

  get #choosesPods(): boolean {
    return (this.#egress.informer.store.get(this.#ref.name, this.#ref.namespace)?.access.entries.length ?? 0) > 0;
  }

  /** Begins to follow the pods; those of before count until the new list was read. */
  #openPods(group: TaskGroup, withLabels: boolean): void {
    const { api, clock, onChange } = this.#parts;
    this.#hasLabels = withLabels;
    const informer = createInformer(api, resources.pods, {
      transform: (pod) => routerClient(pod, this.#ref, { withLabels }),
      onHealth: this.#onPodsHealth,
      clock,
    });
    informer.addHandler({
      onAdd: ({ candidate }) => candidate !== undefined && onChange(),
      onUpdate: (before, after) => !sameCandidate(before, after) && onChange(),
      onDelete: ({ candidate }) => candidate !== undefined && onChange(),
    });
    const ended = new AbortController();
    const opened = new Deferred();
    this.#opening = opened.promise;
    group.spawn((at) => informer.run({ signal: AbortSignal.any([at, ended.signal]) }));
    group.spawn(async (at) => {
      await unlessAborted(informer.synced, { signal: at });
      this.#endPods?.abort();
      this.#endPods = ended;
      this.#pods = informer;
      opened.resolve();
      onChange();
    });
  }

  #report(): void {
    const text = this.unchecked.join();
    if (text === this.#reported) return;
    this.#reported = text;
    const { log } = this.#parts;
    if (text === "") log.info("the account may read all that a router checks");
    else
      log.warn("not checked: the account of this router may not read it; see the ClusterRole coil-egress", {
        unchecked: text,
      });
  }
}

function namespaceView(namespace: Namespace): NamespaceView {
  const { name, uid, resourceVersion } = namespace.metadata;
  return { ...accessNamespace(namespace), metadata: { name, uid, resourceVersion } };
}
