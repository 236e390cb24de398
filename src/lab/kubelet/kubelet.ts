import { randomBytes } from "node:crypto";
import type { Clock } from "#base/clock";
import type { Logger } from "#base/log";
import type { Kernel } from "#kernel/net";
import { isKubeError, type KubeApi, objectKey, type Pod, resources } from "#kube/client";
import { createInformer, type Informer } from "#kube/informer";
import { Controller } from "#kube/reconciler";
import { CniCallError, type CniRunner } from "./cni-exec.ts";
import { environmentOf } from "./environment.ts";
import type { ExecPlace, ExecRequest } from "./exec/index.ts";
import { type ReadinessProbe, readinessProbes, watchReadiness } from "./readiness.ts";
import { Sandbox } from "./sandbox.ts";
import { runningStatus, waitingStatus } from "./status.ts";

/** Annotation of a pod: the path of its network namespace, for `lab exec` and the ping mesh. */
export const NETNS_ANNOTATION = "lab.isthmus.dev/netns";

/** The status of a pod that the lab does not run. */
const NOT_FOR_LABS = {
  reason: "NotForLab",
  message: "this Node belongs to an Isthmus lab, which runs only pods that tolerate this taint by its key",
} as const;

/** The status of a pod whose RuntimeClass the kubelet does not have; it has none. */
const NO_RUNTIME = {
  reason: "FailedCreatePodSandBox",
  message: "a lab's kubelet has no runtime of the pod's runtimeClassName: it does not start the pod",
} as const;

export interface KubeletDeps {
  readonly api: KubeApi;
  readonly kernel: Kernel;
  readonly cni: CniRunner;
  readonly log: Logger;
  readonly clock: Clock;
}

export interface KubeletOptions {
  readonly nodeName: string;
  readonly nodeAddresses: readonly string[];
  /** Prefix of the names of pods' namespaces. */
  readonly netnsPrefix: string;
  /** Returns true if the kubelet runs a pod of its node. Default: it runs all. Other pods wait, and their deletion is confirmed at once. */
  readonly accepts?: (pod: Pod) => boolean;
}

interface Running {
  /** The key of the pod. */
  readonly key: string;
  readonly sandbox: Sandbox;
  /** Aborts the probes when the pod ends. */
  readonly probing: AbortController;
  isReady: boolean;
  ips: readonly string[] | undefined;
  exit: { readonly code: number | null } | undefined;
  /** Set once its process was asked to end; it still serves during its grace period. */
  ending: Promise<void> | undefined;
  /** True if its grace period is over. */
  isEnded: boolean;
}

/** Starts and ends the pods of one node. */
export class Kubelet {
  readonly #deps: KubeletDeps;
  readonly #options: KubeletOptions;
  readonly #clock: Clock;
  readonly #pods: Informer<Pod, Pod>;
  readonly #controller: Controller;
  /** The key is the pod's uid: a new pod with the same name is another pod. */
  readonly #running = new Map<string, Running>();

  constructor(deps: KubeletDeps, options: KubeletOptions) {
    this.#deps = deps;
    this.#options = options;
    this.#clock = deps.clock;
    this.#pods = createInformer(deps.api, resources.pods, {
      fieldSelector: `spec.nodeName=${options.nodeName}`,
      clock: deps.clock,
    });
    this.#controller = new Controller({
      name: `kubelet-${options.nodeName}`,
      // The number of workers is high, so that a slow pod does not delay other pods.
      workers: 128,
      retry: { initialMs: 100, maxMs: 5000 },
      waitFor: [this.#pods],
      reconcile: (key) => this.#sync(key),
      log: deps.log,
      clock: deps.clock,
    });
    const enqueue = (pod: Pod): void => this.#controller.enqueue(objectKey(pod));
    this.#pods.addHandler({ onAdd: enqueue, onUpdate: (_before, pod) => enqueue(pod), onDelete: enqueue });
  }

  /** Runs until the signal aborts. Pods stay; the removal of the lab removes their namespaces. */
  async run(options: { readonly signal: AbortSignal }): Promise<void> {
    try {
      await Promise.all([this.#pods.run(options), this.#controller.run(options)]);
    } finally {
      // A running probe would keep the process alive.
      for (const { probing } of this.#running.values()) probing.abort();
    }
  }

  /** The namespace and environment of a container, for a command; `undefined` unless its pod runs on this node. */
  placeOf({
    namespace,
    pod: name,
    container,
  }: Pick<ExecRequest, "namespace" | "pod" | "container">): ExecPlace | undefined {
    const pod = this.#pods.store.getByKey(`${namespace}/${name}`);
    if (pod?.spec?.containers?.some((one) => one.name === container) !== true) return undefined;
    const running = this.#running.get(pod.metadata.uid);
    return running?.ips === undefined || running.exit !== undefined ? undefined : running.sandbox.place;
  }

  async #sync(key: string): Promise<void> {
    const pod = this.#pods.store.getByKey(key);
    // Sandboxes of earlier pods of the name, and of a pod that was deleted during the last sync.
    for (const [uid, running] of [...this.#running]) {
      if (running.key === key && uid !== pod?.metadata.uid) await this.#remove(uid);
    }
    if (pod === undefined) return;
    if (pod.metadata.deletionTimestamp !== undefined) {
      const running = this.#running.get(pod.metadata.uid);
      if (running !== undefined && !running.isEnded) {
        running.ending ??= this.#end(running, pod);
        // As long as it serves, its probes count: endpoints that terminate and serve keep connections.
        if (running.exit === undefined && running.ips !== undefined) await this.#report(pod, running);
        return;
      }
      await this.#remove(pod.metadata.uid);
      await this.#confirmDeletion(pod);
      return;
    }
    if (pod.status?.phase === "Succeeded" || pod.status?.phase === "Failed") {
      await this.#remove(pod.metadata.uid);
      return;
    }
    if (this.#options.accepts?.(pod) === false) {
      await this.#writeStatus(pod, waitingStatus(pod, NOT_FOR_LABS, this.#clock.now()));
      return;
    }
    if (pod.spec?.runtimeClassName !== undefined) {
      await this.#writeStatus(pod, waitingStatus(pod, NO_RUNTIME, this.#clock.now()));
      return;
    }
    // A sandbox whose attachment failed, and whose removal failed too, is removed first.
    if (this.#running.has(pod.metadata.uid) && this.#running.get(pod.metadata.uid)?.ips === undefined) {
      await this.#remove(pod.metadata.uid);
    }
    const running = this.#running.get(pod.metadata.uid) ?? (await this.#start(key, pod));
    await this.#report(pod, running);
  }

  /** Starts a pod. Like a kubelet, it removes a sandbox that cannot be attached; the next try makes a new sandbox. */
  async #start(key: string, pod: Pod): Promise<Running> {
    if (pod.spec?.hostNetwork === true) throw new CniCallError(`pod ${key}: a lab cannot run hostNetwork pods`);
    const id = randomBytes(32).toString("hex");
    const { uid, name, namespace = "default" } = pod.metadata;
    const container = pod.spec?.containers?.[0];
    const command = [...(container?.command ?? []), ...(container?.args ?? [])];
    const sandbox = new Sandbox(
      { kernel: this.#deps.kernel, cni: this.#deps.cni, log: this.#deps.log, clock: this.#clock },
      {
        id,
        netnsName: `${this.#options.netnsPrefix}${this.#options.nodeName}-${id.slice(0, 8)}`,
        pod: {
          namespace,
          name,
          uid,
          annotations: pod.metadata.annotations ?? {},
          command: command.length === 0 ? undefined : command,
          envOf: (ips) => environmentOf(pod, { ips, hostIps: this.#options.nodeAddresses }),
        },
      },
    );
    const probes = readinessProbes(pod);
    const probing = new AbortController();
    const running: Running = {
      key,
      sandbox,
      probing,
      isReady: probes.length === 0,
      ips: undefined,
      exit: undefined,
      ending: undefined,
      isEnded: false,
    };
    this.#running.set(uid, running);
    try {
      running.ips = await sandbox.attach();
    } catch (error) {
      if (error instanceof CniCallError) await this.#reportFailure(pod, error);
      await this.#remove(uid);
      throw error;
    }
    sandbox.start((code) => {
      running.exit = { code };
      this.#controller.enqueue(key);
    });
    this.#watchReadiness(key, running, probes);
    return running;
  }

  #watchReadiness(key: string, running: Running, probes: readonly ReadinessProbe[]): void {
    const { place } = running.sandbox;
    const [ip] = running.ips ?? [];
    if (probes.length === 0 || place === undefined || ip === undefined) return;
    const tell = (isReady: boolean): void => {
      running.isReady = isReady;
      this.#controller.enqueue(key);
    };
    void watchReadiness({ netns: place.netns, ip, probes }, tell, {
      signal: running.probing.signal,
      clock: this.#clock,
    });
  }

  /** Lets the pod's process end: it gets SIGTERM and its grace period. */
  async #end(running: Running, { metadata }: Pod): Promise<void> {
    await running.sandbox.end((metadata.deletionGracePeriodSeconds ?? 0) * 1000);
    running.isEnded = true;
    this.#controller.enqueue(running.key);
  }

  async #remove(uid: string): Promise<void> {
    this.#running.get(uid)?.probing.abort();
    await this.#running.get(uid)?.sandbox.remove();
    this.#running.delete(uid);
  }

  async #confirmDeletion(pod: Pod): Promise<void> {
    const { name, namespace, uid } = pod.metadata;
    try {
      await this.#deps.api.delete(
        resources.pods,
        { name, namespace },
        { gracePeriodSeconds: 0, preconditions: { uid } },
      );
    } catch (error) {
      // After a conflict the write is tried again, and then the informer has the new pod.
      if (!isKubeError(error, "not-found")) throw error;
    }
  }

  async #report(pod: Pod, running: Running): Promise<void> {
    const status = runningStatus(pod, {
      ips: running.ips ?? [],
      hostIps: this.#options.nodeAddresses,
      sandboxId: running.sandbox.id,
      exit: running.exit,
      isReady: running.isReady,
      nowMs: this.#clock.now(),
    });
    const netns = running.sandbox.netnsPath;
    const { name, namespace } = pod.metadata;
    const ref = { name, namespace };
    try {
      if (pod.metadata.annotations?.[NETNS_ANNOTATION] !== netns) {
        const body = { metadata: { uid: pod.metadata.uid, annotations: { [NETNS_ANNOTATION]: netns } } };
        await this.#deps.api.patch(resources.pods, ref, { type: "merge", body });
      }
      if (status === undefined) return;
      const body = { metadata: { uid: pod.metadata.uid }, status };
      await this.#deps.api.patch(resources.pods, ref, { type: "merge", body }, { subresource: "status" });
    } catch (error) {
      // The pod was deleted or replaced; the informer will receive the event.
      if (!isKubeError(error, "not-found")) throw error;
    }
  }

  /** Writes the reason for which a pod waits for its network, for `kubectl describe`. */
  async #reportFailure(pod: Pod, error: CniCallError): Promise<void> {
    await this.#writeStatus(
      pod,
      waitingStatus(pod, { reason: "FailedCreatePodSandBox", message: error.message }, this.#clock.now()),
    );
  }

  async #writeStatus(pod: Pod, status: Pod["status"]): Promise<void> {
    const { name, namespace, uid } = pod.metadata;
    if (status === undefined) return;
    try {
      await this.#deps.api.patch(
        resources.pods,
        { name, namespace },
        { type: "merge", body: { metadata: { uid }, status } },
        { subresource: "status" },
      );
    } catch (failure) {
      if (!isKubeError(failure)) throw failure;
      this.#deps.log.warn("cannot write the reason for which a pod waits into its status", {
        pod: name,
        error: failure.message,
      });
    }
  }
}
