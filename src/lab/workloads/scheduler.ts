import type { Clock } from "#base/clock";
import type { Logger } from "#base/log";
import { isKubeError, type KubeApi, objectKey, type Pod, parseObjectKey, resources } from "#kube/client";
import { createInformer, type Informer } from "#kube/informer";
import { Controller } from "#kube/reconciler";
import { chooseNode, ownerOf, type PlacedPod } from "./choose-node.ts";

/** Binds pods to nodes. */
export class Scheduler {
  readonly #api: KubeApi;
  readonly #pods: Informer<Pod, Pod>;
  readonly #nodes;
  readonly #controller: Controller;
  /** Pods that were bound here, by key, until the informer has the binding. */
  readonly #assumed = new Map<string, PlacedPod>();

  constructor(deps: { readonly api: KubeApi; readonly log: Logger; readonly clock: Clock }) {
    this.#api = deps.api;
    this.#pods = createInformer(deps.api, resources.pods, { clock: deps.clock });
    this.#nodes = createInformer(deps.api, resources.nodes, { clock: deps.clock });
    this.#controller = new Controller({
      name: "scheduler",
      waitFor: [this.#pods, this.#nodes],
      retry: { initialMs: 100, maxMs: 5000 },
      reconcile: (key, { signal }) => this.#schedule(key, signal),
      log: deps.log.child("scheduler"),
      clock: deps.clock,
    });
    const seen = (pod: Pod): void => {
      if (pod.spec?.nodeName === undefined) this.#controller.enqueue(objectKey(pod));
      else this.#assumed.delete(objectKey(pod));
    };
    this.#pods.addHandler({
      onAdd: seen,
      onUpdate: (_before, pod) => seen(pod),
      onDelete: (pod) => this.#assumed.delete(objectKey(pod)),
    });
    const retryAll = (): void => {
      for (const pod of this.#pods.store.values()) seen(pod);
    };
    this.#nodes.addHandler({ onAdd: retryAll, onUpdate: retryAll });
  }

  async run(options: { readonly signal: AbortSignal }): Promise<void> {
    await Promise.all([this.#pods.run(options), this.#nodes.run(options), this.#controller.run(options)]);
  }

  async #schedule(key: string, signal: AbortSignal): Promise<void> {
    const pod = this.#pods.store.getByKey(key);
    if (pod === undefined || pod.spec?.nodeName !== undefined || this.#assumed.has(key)) return;
    if (pod.metadata.deletionTimestamp !== undefined) return this.#removeUnscheduled(pod, signal);
    // The removal of the last gate is an event of the pod.
    if ((pod.spec?.schedulingGates?.length ?? 0) > 0) return;
    const node = chooseNode(pod, this.#nodes.store.values(), this.#placed());
    if (node === undefined) return; // tried again when a node appears or changes
    const { name, namespace = "default" } = parseObjectKey(key);
    const body = {
      apiVersion: "v1",
      kind: "Binding",
      metadata: { name, namespace, uid: pod.metadata.uid },
      target: { apiVersion: "v1", kind: "Node", name: node },
    };
    const path = `/api/v1/namespaces/${namespace}/pods/${name}/binding`;
    try {
      await this.#api.request({ method: "POST", path, body }, { signal });
      const now = this.#pods.store.getByKey(key);
      // The informer already has the binding, or the pod was deleted: no later event would remove the entry.
      if (now?.metadata.uid === pod.metadata.uid && now.spec?.nodeName === undefined)
        this.#assumed.set(key, { node, owner: ownerOf(pod) });
    } catch (error) {
      // After a conflict the binding is tried again: another writer changed the pod, or the pod is already bound and the response was lost.
      if (!isKubeError(error, "not-found")) throw error;
    }
  }

  /** Completes the deletion of a pod without a node, because no kubelet does it. */
  async #removeUnscheduled(pod: Pod, signal: AbortSignal): Promise<void> {
    const { name, namespace, uid } = pod.metadata;
    try {
      await this.#api.delete(
        resources.pods,
        { name, namespace },
        { gracePeriodSeconds: 0, preconditions: { uid }, signal },
      );
    } catch (error) {
      if (!isKubeError(error, "not-found")) throw error;
    }
  }

  #placed(): PlacedPod[] {
    const shown = [...this.#pods.store.values()].flatMap((pod) => {
      const node = pod.spec?.nodeName;
      return node === undefined ? [] : [{ node, owner: ownerOf(pod) }];
    });
    return [...shown, ...this.#assumed.values()];
  }
}
