import type { AbortOptions } from "#base/async";
import type { Clock } from "#base/clock";
import type { Logger } from "#base/log";
import { findObject, isKubeError, type KubeApi, resources } from "#kube/client";
import {
  type BlockRequest,
  type BlockRequestCondition,
  type BlockRequestSpec,
  type BlockRequestStatus,
  coilResources,
} from "#kube/coil";
import type { PoolManager } from "./pool-manager.ts";

const { blockRequests } = coilResources;
/** The reason of a request that fails because its pool's spec cannot be used. */
export const INVALID_POOL = "invalid pool";
/** The reason of a request that fails because its pool is being deleted. */
export const DELETED_POOL = "pool is being deleted";

/** Answers BlockRequests (docs/spec/pod-network.md#3.2). Idempotent: a step that failed is repeated without a second block. */
export class BlockRequestReconciler {
  readonly #api: KubeApi;
  readonly #pools: PoolManager;
  readonly #hasNode: (name: string) => boolean;
  readonly #clock: Clock;
  readonly #log: Logger;

  constructor(deps: {
    readonly api: KubeApi;
    readonly pools: PoolManager;
    /** True if a cache has this Node. A Node that the cache lacks is read from the API server. Default: no cache. */
    readonly hasNode?: (name: string) => boolean;
    readonly clock: Clock;
    readonly log: Logger;
  }) {
    this.#api = deps.api;
    this.#pools = deps.pools;
    this.#hasNode = deps.hasNode ?? (() => false);
    this.#clock = deps.clock;
    this.#log = deps.log;
  }

  /** Answers the request of that name, if it exists and has no answer. Rejects with `KubeError`; the caller then tries again. */
  async reconcile(name: string, options: AbortOptions): Promise<void> {
    // The request is read live, not from a cache: a deleted or replaced request must not get a block.
    const request = await findObject(this.#api, blockRequests, { name }, options);
    if (request === undefined || request.metadata.deletionTimestamp !== undefined) return;
    if ((request.status?.conditions ?? []).length > 0) return;
    if (request.spec === undefined) return this.#refuse(request, options);
    const status = await this.#answer(request.metadata.uid, request.spec, options);
    await this.#api.replaceStatus(blockRequests, { ...request, status }, options);
    this.#log.info("block request answered", {
      request: name,
      node: request.spec.nodeName,
      pool: request.spec.poolName,
      block: status.addressBlockName,
      reason: lastReason(status),
    });
  }

  /** Answers a request that has no spec, because the schema was not checked. No node waits for the answer; the API server may refuse it. */
  async #refuse(request: BlockRequest, options: AbortOptions): Promise<void> {
    const status = this.#failed("invalid request", "the request has no spec: it names neither node nor pool");
    this.#log.warn("a block request without a spec was refused", { request: request.metadata.name });
    try {
      await this.#api.replaceStatus(blockRequests, { ...request, status }, options);
    } catch (error) {
      if (!isKubeError(error, "invalid")) throw error;
    }
  }

  async #answer(
    uid: string,
    { poolName, nodeName }: BlockRequestSpec,
    options: AbortOptions,
  ): Promise<BlockRequestStatus> {
    const made = await this.#pools.madeFor(uid, options);
    if (made !== undefined) return this.#allocated(made);
    // A block for a Node that was deleted a moment ago is collected after its grace.
    if (!this.#hasNode(nodeName)) {
      const node = await findObject(this.#api, resources.nodes, { name: nodeName }, options);
      if (node === undefined) return this.#failed("node not found", `node ${nodeName} does not exist`);
    }
    const carved = await this.#pools.carve(poolName, nodeName, uid, options);
    if (carved.kind === "block") return this.#allocated(carved.name);
    if (carved.kind === "exhausted") {
      const why = carved.overlap === undefined ? "" : `: its remaining addresses overlap block ${carved.overlap}`;
      return this.#failed("out of blocks", `pool ${poolName} does not have free blocks${why}`);
    }
    if (carved.kind === "deleting")
      return this.#failed(DELETED_POOL, `pool ${poolName} is being deleted and gives no more blocks`);
    if (carved.kind === "invalid") return this.#failed(INVALID_POOL, `pool ${poolName}: ${carved.fault}`);
    return this.#failed("pool not found", `pool ${poolName} does not exist`);
  }

  #allocated(block: string): BlockRequestStatus {
    return { addressBlockName: block, conditions: [this.#condition("Complete", "allocated", `allocated ${block}`)] };
  }

  #failed(reason: string, message: string): BlockRequestStatus {
    return {
      conditions: [
        this.#condition("Complete", "completed with failure", "completed with failure"),
        this.#condition("Failed", reason, message),
      ],
    };
  }

  #condition(type: "Complete" | "Failed", reason: string, message: string): BlockRequestCondition {
    // RFC 3339 in whole seconds, as metav1.Time is written.
    const now = `${new Date(this.#clock.now()).toISOString().slice(0, 19)}Z`;
    return { type, status: "True", reason, message, lastProbeTime: now, lastTransitionTime: now };
  }
}

function lastReason(status: BlockRequestStatus): string | undefined {
  return status.conditions?.at(-1)?.reason;
}
