import { type AbortOptions, sleep } from "#base/async";
import type { Clock } from "#base/clock";
import { type Logger, Repeats } from "#base/log";
import { type Draft, findObject, isKubeError, type KubeApi, KubeError, type Lease, resources } from "#kube/client";
import { nodeConditions } from "./node-object.ts";

/** Like kubelets: a Lease of 40 s, renewed every 10 s, and the whole status every five minutes. */
const LEASE_SECONDS = 40;
const RENEW_MS = 10_000;
const STATUS_MS = 300_000;
const LEASE_NAMESPACE = "kube-node-lease";
/** Pause before the next attempt while the cluster cannot be reached, in milliseconds. */
const RETRY_MS = 1000;

/** Dependencies of {@link Heartbeat}. */
export interface HeartbeatDeps {
  readonly api: Pick<KubeApi, "get" | "patch">;
  /** Creates the node's Lease; rejects if the Lease belongs to another owner. */
  readonly createLease: (draft: Draft<Lease>, options: AbortOptions) => Promise<Lease>;
  readonly log: Logger;
  readonly clock: Clock;
}

/** Reports that a node is alive. Without these reports a node controller marks the node as lost and deletes its pods. */
export class Heartbeat {
  readonly #deps: HeartbeatDeps;
  readonly #node: string;
  readonly #clock: Clock;
  readonly #repeats = new Repeats();
  #readySinceMs = 0;
  #statusMs = Number.NEGATIVE_INFINITY;
  #lease: Lease | undefined;

  constructor(deps: HeartbeatDeps, { node }: { readonly node: string }) {
    this.#deps = deps;
    this.#node = node;
    this.#clock = deps.clock;
  }

  /** Reports that the node is ready, so that pods are scheduled there. Rejects with `KubeError`. */
  async ready(options: AbortOptions): Promise<void> {
    this.#readySinceMs = this.#clock.now();
    await this.#renew(options);
    await this.#report(options);
  }

  /** Repeats the report until the signal aborts. A refusal of the cluster is logged once. */
  async run({ signal }: { readonly signal: AbortSignal }): Promise<void> {
    let pauseMs = RENEW_MS;
    for (;;) {
      try {
        await sleep(pauseMs, { signal, clock: this.#clock });
        await this.#renew({ signal });
        if (this.#clock.monotonic() - this.#statusMs >= STATUS_MS) await this.#report({ signal });
        this.#repeats.forget(this.#node);
        pauseMs = RENEW_MS;
      } catch (error) {
        if (signal.aborted) return;
        if (!(error instanceof KubeError)) throw error;
        pauseMs = RETRY_MS;
        if (this.#repeats.isNew(this.#node, error.message))
          this.#deps.log.warn("cannot renew the Lease or status of a node; trying again", { error: error.message });
      }
    }
  }

  async #report(options: AbortOptions): Promise<void> {
    const conditions = nodeConditions({ isReady: true, sinceMs: this.#readySinceMs, nowMs: this.#clock.now() });
    const body = { status: { conditions } };
    // A strategic merge keeps conditions of other programs, for example of a cloud's network.
    const patch = { type: "strategic", body } as const;
    await this.#deps.api.patch(resources.nodes, { name: this.#node }, patch, { ...options, subresource: "status" });
    this.#statusMs = this.#clock.monotonic();
  }

  async #renew(options: AbortOptions): Promise<void> {
    const spec = {
      holderIdentity: this.#node,
      leaseDurationSeconds: LEASE_SECONDS,
      renewTime: microTime(this.#clock.now()),
    };
    const ref = { name: this.#node, namespace: LEASE_NAMESPACE };
    const uid = this.#lease?.metadata.uid;
    if (uid !== undefined) {
      try {
        await this.#deps.api.patch(
          resources.leases,
          ref,
          { type: "merge", body: { metadata: { uid }, spec } },
          options,
        );
        return;
      } catch (error) {
        // The Lease is deleted with its Node. A new Node of the same name has a new Lease.
        if (!isKubeError(error, "not-found", "conflict")) throw error;
        this.#lease = undefined;
      }
    }
    const node = await findObject(this.#deps.api, resources.nodes, { name: this.#node }, options);
    if (node === undefined) return;
    const owner = { apiVersion: "v1", kind: "Node", name: this.#node, uid: node.metadata.uid };
    this.#lease = await this.#deps.createLease({ metadata: { ...ref, ownerReferences: [owner] }, spec }, options);
  }
}

/** metav1.MicroTime. */
function microTime(ms: number): string {
  return `${new Date(ms).toISOString().slice(0, -1)}000Z`;
}
