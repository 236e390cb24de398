import type { Clock } from "#base/clock";
import type { Logger } from "#base/log";
import { type Deployment, type KubeApi, objectKey, type Pod, resources } from "#kube/client";
import { createInformer, type Informer } from "#kube/informer";
import { Controller } from "#kube/reconciler";
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
import { planRollout } from "./rollout.ts";

/** Makes pods of Deployments, without ReplicaSets. */
export class DeploymentController {
  readonly #api: KubeApi;
  readonly #deployments: Informer<Deployment, Deployment>;
  readonly #pods: Informer<Pod, Pod>;
  readonly #controller: Controller;

  constructor(deps: { readonly api: KubeApi; readonly log: Logger; readonly clock: Clock }) {
    this.#api = deps.api;
    this.#deployments = createInformer(deps.api, resources.deployments, { clock: deps.clock });
    this.#pods = createInformer(deps.api, resources.pods, { clock: deps.clock });
    this.#controller = new Controller({
      name: "deployment",
      workers: 4,
      waitFor: [this.#deployments, this.#pods],
      retry: { initialMs: 100, maxMs: 5000 },
      reconcile: (key, { signal }) => this.#sync(key, signal),
      log: deps.log.child("deployment"),
      clock: deps.clock,
    });
    const enqueue = (deployment: Deployment): void => this.#controller.enqueue(objectKey(deployment));
    this.#deployments.addHandler({ onAdd: enqueue, onUpdate: (_before, after) => enqueue(after) });
    watchOwnedPods(this.#pods, "Deployment", (key) => this.#controller.enqueue(key));
  }

  async run(options: { readonly signal: AbortSignal }): Promise<void> {
    await Promise.all([this.#deployments.run(options), this.#pods.run(options), this.#controller.run(options)]);
  }

  async #sync(key: string, signal: AbortSignal): Promise<void> {
    const deployment = this.#deployments.store.getByKey(key);
    const spec = deployment?.spec;
    if (deployment === undefined || spec === undefined || deployment.metadata.deletionTimestamp !== undefined) return;
    const owner = ownerOf(deployment);
    const template = spec.template as Parameters<typeof templateHash>[0];
    const hash = templateHash(template);
    const pods = await listOwnedPods(this.#api, owner, spec.selector.matchLabels ?? {}, signal);
    const replicas = spec.replicas ?? 1;
    const recreate = spec.strategy?.type === "Recreate";
    const plan = planRollout(
      pods.map((pod) => ({
        name: pod.metadata.name,
        current: pod.metadata.labels?.[HASH_LABEL] === hash,
        ready: isReady(pod),
        deleting: pod.metadata.deletionTimestamp !== undefined,
      })),
      {
        replicas,
        maxSurge: recreate ? 0 : Math.ceil(replicas / 4),
        maxUnavailable: recreate ? replicas : Math.floor(replicas / 4),
      },
    );
    for (const pod of pods) if (plan.delete.includes(pod.metadata.name)) await deleteOwnedPod(this.#api, pod, signal);
    for (let made = 0; made < plan.create; made += 1)
      await createOwnedPod(this.#api, owner, template, { hash, signal });
    await this.#report(deployment, pods, hash, signal);
  }

  async #report(deployment: Deployment, pods: readonly Pod[], hash: string, signal: AbortSignal): Promise<void> {
    const alive = pods.filter((pod) => pod.metadata.deletionTimestamp === undefined);
    const ready = alive.filter(isReady).length;
    const replicas = deployment.spec?.replicas ?? 1;
    const counts = {
      observedGeneration: deployment.metadata.generation ?? 0,
      replicas: alive.length,
      updatedReplicas: alive.filter((pod) => pod.metadata.labels?.[HASH_LABEL] === hash).length,
      readyReplicas: ready,
      availableReplicas: ready,
      unavailableReplicas: Math.max(0, replicas - ready),
    };
    const available = {
      type: "Available",
      status: ready >= replicas ? "True" : "False",
      reason: ready >= replicas ? "MinimumReplicasAvailable" : "MinimumReplicasUnavailable",
    };
    const status = { counts, more: { conditions: [available] } };
    await reportStatus(this.#api, resources.deployments, deployment, status, signal);
  }
}

function ownerOf(deployment: Deployment): PodOwner {
  const { name, namespace = "default", uid } = deployment.metadata;
  return { apiVersion: "apps/v1", kind: "Deployment", name, namespace, uid };
}
