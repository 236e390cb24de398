import type { AbortOptions } from "#base/async";
import type { Clock } from "#base/clock";
import {
  type ClientEgress,
  type ClientService,
  clientEgress,
  clientService,
  EGRESS_SERVICES,
  type EgressSource,
  type Gateway,
  isObjectRef,
} from "#features/egress";
import { findObject, type KubeApi, resources, type Service } from "#kube/client";
import { coilResources, type Egress } from "#kube/coil";
import { createInformer, type Informer, type InformerHealth } from "#kube/informer";
import { API_BUDGET_MS, apiCall } from "../cni-deps.ts";

type Ref = Gateway["egress"];
const keyOf = ({ namespace = "", name }: { readonly namespace?: string | undefined; readonly name: string }): string =>
  `${namespace}/${name}`;

/**
 * The Egresses of the cluster and their Services, as they are known here. Their first lists are consistent: an older state would change running pods.
 * The Service of an Egress has its name and namespace.
 */
export class ClientSources {
  readonly egresses: Informer<Egress, ClientEgress>;
  readonly services: Informer<Service, ClientService>;
  readonly #api: KubeApi;
  readonly #clock: Clock;
  /** Services that were deleted while their Egress stays, as they were last: packets wait for the next one and never leave without NAT. */
  readonly #deleted = new Map<string, ClientService>();

  constructor(parts: {
    readonly api: KubeApi;
    readonly onHealth: (plural: string) => (state: InformerHealth) => void;
    /** Called with `namespace/name` of an Egress whose clients must be compared. */
    readonly onChange: (key: string) => void;
    readonly clock: Clock;
  }) {
    const { api, onHealth, onChange, clock } = parts;
    this.#api = api;
    this.#clock = clock;
    this.egresses = createInformer(api, coilResources.egresses, {
      transform: clientEgress,
      onHealth: onHealth("egresses"),
      clock,
    });
    this.services = createInformer(api, resources.services, {
      labelSelector: EGRESS_SERVICES,
      transform: clientService,
      onHealth: onHealth("services"),
      clock,
    });
    const egressText = ({ metadata: _, destinations, ...others }: ClientEgress): string =>
      JSON.stringify([destinations.map(String), others]);
    this.egresses.addHandler({
      onAdd: ({ metadata }) => onChange(keyOf(metadata)),
      onUpdate: (before, after) => egressText(before) !== egressText(after) && onChange(keyOf(after.metadata)),
      onDelete: ({ metadata }) => {
        this.#deleted.delete(keyOf(metadata));
        onChange(keyOf(metadata));
      },
    });
    this.services.addHandler({
      onAdd: ({ metadata }) => {
        this.#deleted.delete(keyOf(metadata));
        onChange(keyOf(metadata));
      },
      onUpdate: (before, after) =>
        String(before.addresses) !== String(after.addresses) && onChange(keyOf(after.metadata)),
      onDelete: (service) => {
        const key = keyOf(service.metadata);
        if (this.egresses.store.getByKey(key) !== undefined) this.#deleted.set(key, service);
        onChange(key);
      },
    });
  }

  /** The known state. */
  get known(): EgressSource {
    return {
      egress: (ref) => this.egresses.store.getByKey(keyOf(ref)),
      service: (ref) => this.services.store.getByKey(keyOf(ref)) ?? this.#deleted.get(keyOf(ref)),
    };
  }

  /**
   * What an ADD needs: what is not known is read live, up to the first Egress or Service that does not exist. Rejects with `CniFailure` `not-ready`
   * when the API server has not answered all within 5 s.
   */
  async forAdd(refs: readonly Ref[], { signal }: AbortOptions): Promise<EgressSource> {
    const egresses = new Map<string, ClientEgress>();
    const services = new Map<string, ClientService>();
    const endMs = this.#clock.monotonic() + API_BUDGET_MS;
    const options = () => ({ signal, timeoutMs: Math.max(1, Math.round(endMs - this.#clock.monotonic())) });
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
      const service =
        this.services.store.getByKey(key) ??
        (await apiCall(`read Service ${key}`, async () => {
          const found = await findObject(this.#api, resources.services, ref, options());
          return found === undefined ? undefined : clientService(found);
        }));
      if (service === undefined) break;
      services.set(key, service);
    }
    return { egress: (ref) => egresses.get(keyOf(ref)), service: (ref) => services.get(keyOf(ref)) };
  }
}
