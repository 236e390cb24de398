import type { AbortOptions } from "#base/async";
import type { Clock } from "#base/clock";
import type { IpAddress } from "#base/ip";
import { findObject, isKubeError, type KubeApi, type Namespace, type Pod, resources, type Service } from "#kube/client";
import { coilResources, type Egress } from "#kube/coil";
import { createInformer, type Informer, type InformerHealth } from "#kube/informer";
import { AccessIndex, type AccessNamespace, accessNamespace, type PodUse, usesFrom } from "../access/index.ts";
import {
  accessPod,
  type ClientEgress,
  type ClientRouter,
  type ClientService,
  clientEgress,
  clientRouter,
  clientService,
  EGRESS_SERVICES,
  type EgressSource,
  type Gateway,
  isObjectRef,
  namedEgresses,
  type UsingPod,
} from "../client/index.ts";
import { API_MS, apiCall } from "./client-error.ts";
import type { ClientNamespace, ClientRecording } from "./types.ts";

const keyOf = ({ namespace = "", name }: { readonly namespace?: string | undefined; readonly name: string }): string =>
  `${namespace}/${name}`;

/** Collaborators of {@link ClientSources}. */
export interface ClientSourceParts {
  readonly api: KubeApi;
  /** Run by the caller. */
  readonly namespaces: Informer<Namespace, ClientNamespace>;
  readonly onHealth: (plural: string) => (state: InformerHealth) => void;
  /** Called with `namespace/name` of an Egress whose clients must be compared; `isAccess`: so must be pods that it selects, or may have selected. */
  readonly onChange: (key: string, change: { readonly isAccess: boolean }) => void;
  /** Called with the name of a Namespace whose labels or consent have changed. */
  readonly onNamespace: (name: string) => void;
  /** Called when a router, or its readiness, has changed. */
  readonly onRouter: () => void;
  readonly recording?: ClientRecording | undefined;
  readonly clock: Clock;
}

/**
 * The Egresses of the cluster and their Services, as they are known here. Their first lists are consistent: an older state would change running pods.
 * The Service of an Egress has its name and namespace.
 */
export class ClientSources {
  readonly egresses: Informer<Egress, ClientEgress>;
  readonly services: Informer<Service, ClientService>;
  /** Router pods, by the Egress that they are of. */
  readonly routers: Informer<Pod, ClientRouter>;
  #hasRouters = false;
  readonly #namespaces: Informer<Namespace, ClientNamespace>;
  readonly #access: AccessIndex;
  readonly #api: KubeApi;
  readonly #clock: Clock;
  /** Services that were deleted while their Egress stays, as they were last: packets wait for the next one and never leave without NAT. */
  readonly #deleted = new Map<string, ClientService>();

  constructor(parts: ClientSourceParts) {
    const { api, namespaces, onHealth, recording, clock } = parts;
    this.#api = api;
    this.#namespaces = namespaces;
    this.#clock = clock;
    this.egresses = createInformer(api, coilResources.egresses, {
      transform: clientEgress,
      onHealth: onHealth("egresses"),
      steps: recording?.stepsFor(coilResources.egresses),
      clock,
    });
    this.services = createInformer(api, resources.services, {
      labelSelector: EGRESS_SERVICES,
      transform: clientService,
      onHealth: onHealth("services"),
      steps: recording?.stepsFor(resources.services),
      clock,
    });
    this.routers = createInformer(api, resources.pods, {
      labelSelector: EGRESS_SERVICES,
      transform: clientRouter,
      indexers: { egress: ({ egress }) => [egress] },
      onHealth: onHealth("routers"),
      steps: recording?.stepsFor(resources.pods, "routers"),
      clock,
    });
    this.#access = new AccessIndex({
      get: (ref) => this.egresses.store.getByKey(keyOf(ref))?.access,
      all: () => [...this.egresses.store.values()].map(({ access }) => access),
    });
    this.#followEgresses(parts);
    this.#followNamespaces(parts);
    this.#followRouters(parts);
    this.#followServices(parts);
  }

  #followEgresses({ onChange }: Pick<ClientSourceParts, "onChange">): void {
    const textOf = ({ metadata: _, access, destinations, ...others }: ClientEgress): string =>
      JSON.stringify([destinations.map(String), access.text, others]);
    const selects = ({ access }: ClientEgress): boolean => access.entries.length > 0;
    this.egresses.addHandler({
      onAdd: (egress) => {
        this.#access.changed();
        onChange(keyOf(egress.metadata), { isAccess: selects(egress) });
      },
      onUpdate: (before, after) => {
        const isAccess = before.access.text !== after.access.text;
        if (isAccess) this.#access.changed();
        if (textOf(before) === textOf(after)) return;
        // Selected pods are found by the index alone.
        onChange(keyOf(after.metadata), { isAccess: isAccess || selects(after) });
      },
      onDelete: (egress) => {
        this.#access.changed();
        this.#deleted.delete(keyOf(egress.metadata));
        onChange(keyOf(egress.metadata), { isAccess: selects(egress) });
      },
    });
  }

  #followNamespaces({ onNamespace }: Pick<ClientSourceParts, "onNamespace">): void {
    const textOf = ({ labels = {}, clientsOf }: AccessNamespace): string =>
      JSON.stringify([Object.entries(labels).sort(), clientsOf ?? null]);
    this.#namespaces.addHandler({
      onAdd: ({ name }) => onNamespace(name),
      onUpdate: (before, after) => textOf(before) !== textOf(after) && onNamespace(after.name),
      onDelete: ({ name }) => {
        this.#access.forget(name);
        onNamespace(name);
      },
    });
  }

  #followRouters({ onChange, onRouter }: Pick<ClientSourceParts, "onChange" | "onRouter">): void {
    void this.routers.synced.then(() => {
      this.#hasRouters = true;
    });
    const textOf = ({ egress, addresses }: ClientRouter): string => `${egress} ${addresses.join()}`;
    const noteChange = ({ egress }: ClientRouter): void => {
      onRouter();
      onChange(egress, { isAccess: this.hasSelectors(egress) });
    };
    this.routers.addHandler({
      onAdd: noteChange,
      onUpdate: (before, after) => {
        onRouter();
        if (textOf(before) === textOf(after)) return;
        for (const key of new Set([before.egress, after.egress])) onChange(key, { isAccess: this.hasSelectors(key) });
      },
      onDelete: noteChange,
    });
  }

  #followServices({ onChange }: Pick<ClientSourceParts, "onChange">): void {
    // The state of a Service changes nothing in who may use the Egress.
    const noteChange = (key: string): void => onChange(key, { isAccess: this.hasSelectors(key) });
    this.services.addHandler({
      onAdd: ({ metadata }) => {
        this.#deleted.delete(keyOf(metadata));
        noteChange(keyOf(metadata));
      },
      onUpdate: (before, after) =>
        String(before.addresses) !== String(after.addresses) && noteChange(keyOf(after.metadata)),
      onDelete: (service) => {
        const key = keyOf(service.metadata);
        if (this.egresses.store.getByKey(key) !== undefined) this.#deleted.set(key, service);
        noteChange(key);
      },
    });
  }

  /**
   * The addresses of the routers of Egresses, from the moment in which they have one until they are deleted. Those that are not known yet, as at an ADD soon after
   * the start, are read live. Rejects with `EgressClientError` `not-ready` when the API server does not answer in time.
   */
  async routersOf(egresses: readonly Gateway["egress"][]): Promise<IpAddress[]> {
    if (!this.#hasRouters) return (await this.#listRouters(egresses)).flatMap(({ addresses }) => addresses);
    return egresses.flatMap((ref) =>
      this.routers.store.byIndex("egress", keyOf(ref)).flatMap(({ addresses }) => addresses),
    );
  }

  async #listRouters(egresses: readonly Gateway["egress"][]): Promise<ClientRouter[]> {
    const keys = new Set(egresses.map(keyOf));
    const namespaces = new Set(egresses.map(({ namespace }) => namespace));
    const lists = [...namespaces].map((namespace) =>
      apiCall(`list the routers of ${namespace}`, () =>
        this.#api.listAll(resources.pods, { namespace, labelSelector: EGRESS_SERVICES, timeoutMs: API_MS }),
      ),
    );
    const pods = (await Promise.all(lists)).flatMap(({ items }) => items);
    return pods.map(clientRouter).filter(({ egress }) => keys.has(egress));
  }

  /** Returns true if an Egress, as `namespace/name`, may have clients that do not name it. */
  hasSelectors(key: string): boolean {
    return (this.egresses.store.getByKey(key)?.access.entries.length ?? 0) > 0;
  }

  /** The Egresses that a pod names, as far as there are any. */
  namedBy({ annotations }: { readonly annotations: Readonly<Record<string, string>> }): readonly ClientEgress[] {
    return namedEgresses(annotations).flatMap((ref) => this.egresses.store.getByKey(keyOf(ref)) ?? []);
  }

  /** The known state. */
  get known(): EgressSource {
    return {
      egress: (ref) => this.egresses.store.getByKey(keyOf(ref)),
      service: (ref) => this.services.store.getByKey(keyOf(ref)) ?? this.#deleted.get(keyOf(ref)),
      usesOf: (pod) => this.#access.usesOf(pod, this.#namespaces.store.getByKey(pod.namespace)),
    };
  }

  /** Returns true if the verdict of an Egress on the pod needs the pod's Namespace, which is not known. */
  lacksNamespace(pod: UsingPod): boolean {
    return this.known.usesOf(accessPod(pod)).some(lacksNamespace);
  }

  /** Returns true if `spec.clients` of an Egress reach the pod and it may use the Egress. */
  isSelected(pod: UsingPod): boolean {
    return this.known.usesOf(accessPod(pod)).some(({ use }) => use.kind === "client" && use.by === "selector");
  }

  /**
   * The objects that an ADD of a pod needs: those that are not known are read live, up to the first Egress or Service that does not exist. `isSynced`: all is known of Egresses, so that
   * those that select the pod need no request. Rejects with `EgressClientError` `not-ready` when the API server has not answered all within 5 s.
   */
  async forAdd(
    pod: UsingPod,
    { signal, isSynced }: AbortOptions & { readonly isSynced: boolean },
  ): Promise<EgressSource> {
    const egresses = new Map<string, ClientEgress>();
    const services = new Map<string, ClientService>();
    const endMs = this.#clock.monotonic() + API_MS;
    const options = () => ({ signal, timeoutMs: Math.max(1, Math.round(endMs - this.#clock.monotonic())) });
    const selecting = isSynced ? this.egresses.store.list() : await this.#listEgresses(options);
    for (const egress of selecting) if (egress.access.entries.length > 0) egresses.set(keyOf(egress.metadata), egress);
    const refs = namedEgresses(pod.annotations);
    for (const ref of refs) {
      const key = keyOf(ref);
      if (!isObjectRef(ref)) break;
      const egress =
        this.egresses.store.getByKey(key) ??
        (await apiCall(`read Egress ${key}`, async () => {
          const found = await findObject(this.#api, coilResources.egresses, ref, options());
          return found === undefined ? undefined : clientEgress(found);
        }));
      if (egress === undefined) break;
      egresses.set(key, egress);
    }
    const accesses = [...egresses.values()].map(({ access }) => access);
    const isUnknown = usesFrom(accesses, () => undefined)(accessPod(pod)).some(lacksNamespace);
    const namespace = isUnknown ? await this.#namespaceOf(pod.namespace, options) : undefined;
    const usesOf = usesFrom(accesses, () => namespace);
    for (const { egress: ref, use } of usesOf(accessPod(pod))) {
      const key = keyOf(ref);
      if (use.kind !== "client") continue;
      const service =
        this.services.store.getByKey(key) ??
        (await apiCall(`read Service ${key}`, async () => {
          const found = await findObject(this.#api, resources.services, ref, options());
          return found === undefined ? undefined : clientService(found);
        }));
      if (service === undefined) break;
      services.set(key, service);
    }
    return { egress: (ref) => egresses.get(keyOf(ref)), service: (ref) => services.get(keyOf(ref)), usesOf };
  }

  /** A cluster without the type has no Egress. A coild without the right to them selects no pod; its health says so, and an ADD that names one fails. */
  async #listEgresses(options: () => CallOptions): Promise<readonly ClientEgress[]> {
    return apiCall("list Egresses", async () => {
      try {
        return (await this.#api.listAll(coilResources.egresses, options())).items.map(clientEgress);
      } catch (error) {
        if (!isKubeError(error, "not-found", "forbidden")) throw error;
        return [];
      }
    });
  }

  async #namespaceOf(name: string, options: () => CallOptions): Promise<AccessNamespace | undefined> {
    const known = this.#namespaces.store.getByKey(name);
    if (known !== undefined) return known;
    const found = await apiCall(`read Namespace ${name}`, () =>
      findObject(this.#api, resources.namespaces, { name }, options()),
    );
    return found === undefined ? undefined : accessNamespace(found);
  }
}

type CallOptions = AbortOptions & { readonly timeoutMs: number };

const lacksNamespace = ({ use }: PodUse): boolean => use.kind === "refused" && use.reason === "namespace-unknown";
