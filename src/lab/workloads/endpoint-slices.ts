import type { Clock } from "#base/clock";
import { isEqual } from "#base/collections";
import type { Logger } from "#base/log";
import {
  type EndpointSlice,
  isKubeError,
  type KubeApi,
  objectKey,
  type Pod,
  resources,
  type Service,
} from "#kube/client";
import { createInformer, type Informer } from "#kube/informer";
import { Controller } from "#kube/reconciler";
import { planSlices, SERVICE_NAME_LABEL, type WantedSlice } from "./plan-slices.ts";

const MANAGED_BY_LABEL = "endpointslice.kubernetes.io/managed-by";
const MANAGED_BY = "endpointslice-controller.isthmus.dev";

/** Writes EndpointSlices for the Services that select pods. */
export class EndpointSliceController {
  readonly #api: KubeApi;
  readonly #services: Informer<Service, Service>;
  readonly #pods: Informer<Pod, Pod>;
  readonly #slices: Informer<EndpointSlice, EndpointSlice>;
  readonly #controller: Controller;

  constructor(deps: { readonly api: KubeApi; readonly log: Logger; readonly clock: Clock }) {
    this.#api = deps.api;
    this.#services = createInformer(deps.api, resources.services, { clock: deps.clock });
    this.#pods = createInformer(deps.api, resources.pods, { clock: deps.clock });
    this.#slices = createInformer(deps.api, resources.endpointSlices, {
      labelSelector: `${MANAGED_BY_LABEL}=${MANAGED_BY}`,
      clock: deps.clock,
    });
    this.#controller = new Controller({
      name: "endpointslice",
      workers: 4,
      waitFor: [this.#services, this.#pods, this.#slices],
      retry: { initialMs: 100, maxMs: 5000 },
      reconcile: (key, { signal }) => this.#sync(key, signal),
      log: deps.log.child("endpointslice"),
      clock: deps.clock,
    });
    const enqueue = (service: Service): void => this.#controller.enqueue(objectKey(service));
    this.#services.addHandler({ onAdd: enqueue, onUpdate: (_before, after) => enqueue(after), onDelete: enqueue });
    const enqueueOf = (pod: Pod): void => {
      for (const service of this.#services.store.list()) if (selects(service, pod)) enqueue(service);
    };
    this.#pods.addHandler({
      onAdd: enqueueOf,
      onUpdate: (before, after) => {
        enqueueOf(before);
        enqueueOf(after);
      },
      onDelete: enqueueOf,
    });
    const enqueueOwner = ({ metadata }: EndpointSlice): void =>
      this.#controller.enqueue(`${metadata.namespace}/${metadata.labels?.[SERVICE_NAME_LABEL]}`);
    this.#slices.addHandler({ onUpdate: (_before, after) => enqueueOwner(after), onDelete: enqueueOwner });
  }

  async run(options: { readonly signal: AbortSignal }): Promise<void> {
    const parts = [this.#services, this.#pods, this.#slices, this.#controller];
    await Promise.all(parts.map((part) => part.run(options)));
  }

  async #sync(key: string, signal: AbortSignal): Promise<void> {
    const service = this.#services.store.getByKey(key);
    const [namespace = "", name = ""] = key.split("/");
    const pods = service === undefined ? [] : this.#pods.store.list().filter((pod) => selects(service, pod));
    const wanted = service?.spec?.selector === undefined ? [] : planSlices(service, pods);
    const held = this.#slices.store
      .list()
      .filter(({ metadata }) => metadata.namespace === namespace && metadata.labels?.[SERVICE_NAME_LABEL] === name);
    for (const slice of wanted) {
      const known = held.find(({ metadata }) => metadata.name === slice.metadata.name);
      if (known === undefined || !isSame(known, slice)) await this.#write(slice, signal);
    }
    for (const { metadata } of held) {
      if (wanted.some((slice) => slice.metadata.name === metadata.name)) continue;
      await this.#delete({ namespace, name: metadata.name }, signal);
    }
  }

  async #write(slice: WantedSlice, signal: AbortSignal): Promise<void> {
    const { name, namespace } = slice.metadata;
    const body = {
      ...slice,
      metadata: { ...slice.metadata, labels: { ...slice.metadata.labels, [MANAGED_BY_LABEL]: MANAGED_BY } },
    };
    const patch = { type: "apply", body, fieldManager: "isthmus-lab-endpointslice", force: true } as const;
    await this.#api.patch(resources.endpointSlices, { name, namespace }, patch, { signal });
  }

  async #delete(ref: { readonly name: string; readonly namespace: string }, signal: AbortSignal): Promise<void> {
    try {
      await this.#api.delete(resources.endpointSlices, ref, { signal });
    } catch (error) {
      if (!isKubeError(error, "not-found")) throw error;
    }
  }
}

function selects({ metadata, spec }: Service, pod: Pod): boolean {
  const selector = Object.entries(spec?.selector ?? {});
  if (selector.length === 0 || metadata.namespace !== pod.metadata.namespace) return false;
  return selector.every(([key, value]) => pod.metadata.labels?.[key] === value);
}

function isSame(held: EndpointSlice, wanted: WantedSlice): boolean {
  return isEqual([held.ports ?? [], held.endpoints ?? []], [wanted.ports, wanted.endpoints]);
}
