import type { Clock } from "#base/clock";
import type { Logger } from "#base/log";
import { type DaemonSet, type KubeApi, objectKey, type Pod, resources } from "#kube/client";
import { createInformer, type Informer } from "#kube/informer";
import { Controller } from "#kube/reconciler";
import { isEligible } from "./choose-node.ts";
import {
  createOwnedPod,
  deleteOwnedPod,
  HASH_LABEL,
  isReady,
  listOwnedPods,
  type PodOwner,
  reportStatus,
  templateHash,
  watchOwnedPods,
} from "./owned-pods.ts";

/** Makes one pod of each DaemonSet on each eligible node. After a change of the template it replaces one pod at a time. */
export class DaemonSetController {
  readonly #api: KubeApi;
  readonly #daemonSets: Informer<DaemonSet, DaemonSet>;
  readonly #pods: Informer<Pod, Pod>;
  readonly #nodes;
  readonly #controller: Controller;

  constructor(deps: { readonly api: KubeApi; readonly log: Logger; readonly clock: Clock }) {
    this.#api = deps.api;
    this.#daemonSets = createInformer(deps.api, resources.daemonSets, { clock: deps.clock });
    this.#pods = createInformer(deps.api, resources.pods, { clock: deps.clock });
    this.#nodes = createInformer(deps.api, resources.nodes, { clock: deps.clock });
    this.#controller = new Controller({
      name: "daemonset",
      waitFor: [this.#daemonSets, this.#pods, this.#nodes],
      retry: { initialMs: 100, maxMs: 5000 },
      reconcile: (key, { signal }) => this.#sync(key, signal),
      log: deps.log.child("daemonset"),
      clock: deps.clock,
    });
    const enqueue = (set: DaemonSet): void => this.#controller.enqueue(objectKey(set));
    this.#daemonSets.addHandler({ onAdd: enqueue, onUpdate: (_before, after) => enqueue(after) });
    const enqueueAll = (): void => {
      for (const set of this.#daemonSets.store.values()) enqueue(set);
    };
    this.#nodes.addHandler({ onAdd: enqueueAll, onUpdate: enqueueAll, onDelete: enqueueAll });
    watchOwnedPods(this.#pods, "DaemonSet", (key) => this.#controller.enqueue(key));
  }

  async run(options: { readonly signal: AbortSignal }): Promise<void> {
    await Promise.all([
      this.#daemonSets.run(options),
      this.#pods.run(options),
      this.#nodes.run(options),
      this.#controller.run(options),
    ]);
  }

  async #sync(key: string, signal: AbortSignal): Promise<void> {
    const set = this.#daemonSets.store.getByKey(key);
    if (set?.spec === undefined || set.metadata.deletionTimestamp !== undefined) return;
    const { name, namespace = "default", uid } = set.metadata;
    const owner: PodOwner = { apiVersion: "apps/v1", kind: "DaemonSet", name, namespace, uid };
    const template = set.spec.template as Parameters<typeof templateHash>[0];
    const hash = templateHash(template);
    const wanted = this.#nodes.store
      .list()
      .filter((node) => isEligible({ spec: { containers: [], ...template.spec } }, node))
      .map((node) => node.metadata.name);
    const pods = await listOwnedPods(this.#api, owner, set.spec.selector.matchLabels ?? {}, signal);
    const byNode = new Map(pods.map((pod) => [pod.spec?.nodeName ?? "", pod]));
    for (const node of wanted) {
      if (!byNode.has(node)) await createOwnedPod(this.#api, owner, template, { hash, nodeName: node, signal });
    }
    for (const pod of pods) {
      if (!wanted.includes(pod.spec?.nodeName ?? "")) await deleteOwnedPod(this.#api, pod, signal);
    }
    const outdated = pods.filter((pod) => pod.metadata.labels?.[HASH_LABEL] !== hash);
    const settled = pods.every((pod) => pod.metadata.deletionTimestamp === undefined && isReady(pod));
    if (settled && outdated[0] !== undefined) await deleteOwnedPod(this.#api, outdated[0], signal);
    await this.#report(set, pods, wanted.length, hash, signal);
  }

  async #report(
    set: DaemonSet,
    pods: readonly Pod[],
    desired: number,
    hash: string,
    signal: AbortSignal,
  ): Promise<void> {
    const ready = pods.filter(isReady).length;
    const counts = {
      observedGeneration: set.metadata.generation ?? 0,
      currentNumberScheduled: pods.length,
      desiredNumberScheduled: desired,
      numberMisscheduled: 0,
      numberReady: ready,
      numberAvailable: ready,
      updatedNumberScheduled: pods.filter((pod) => pod.metadata.labels?.[HASH_LABEL] === hash).length,
    };
    await reportStatus(this.#api, resources.daemonSets, set, { counts }, signal);
  }
}
