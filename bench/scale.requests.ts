/** The simulated nodes' side of BlockRequests: made, watched to their answers, settled; and blocks given back. */
import { Deferred } from "#base/async";
import { isKubeError, type KubeApi, resources } from "#kube/client";
import { type BlockRequest, blockRequestName, blockRequestResult, coilResources } from "#kube/coil";
import { POOL } from "./scale.objects.ts";

const { addressBlocks, blockRequests } = coilResources;
const ANSWER_TIMEOUT_MS = 120_000;

/** A request that was answered. */
export interface Answered {
  readonly block: string;
  /** The time from sending the request until its answer was seen, in milliseconds. */
  readonly ms: number;
  /** When its answer was seen, milliseconds of `performance.now`. */
  readonly atMs: number;
}

/** Requests blocks like the `coild`s of many nodes. */
export class Askers {
  readonly #api: KubeApi;
  readonly #signal: AbortSignal;
  readonly #waiting = new Map<string, Deferred<{ readonly block: string; readonly atMs: number }>>();

  constructor(api: KubeApi, signal: AbortSignal) {
    this.#api = api;
    this.#signal = signal;
  }

  /** Watches all requests until the signal aborts; rejects if the watch fails. */
  async run(signal: AbortSignal): Promise<void> {
    const { resourceVersion } = await this.#api.list(blockRequests, { limit: 1, signal });
    try {
      for await (const event of this.#api.watch(blockRequests, { resourceVersion, signal }))
        if (event.type !== "BOOKMARK" && event.type !== "DELETED") this.#see(event.object);
    } catch (error) {
      if (!signal.aborted) throw error;
    }
    if (!signal.aborted) throw new Error("the watch of BlockRequests has ended");
  }

  /** One request of a node, answered and settled. Rejects when it is refused. */
  async ask(node: string): Promise<Answered> {
    const signal = this.#signal;
    const name = blockRequestName(POOL, node);
    const { uid } = (await this.#api.get(resources.nodes, { name: node }, { signal })).metadata;
    const owner = { apiVersion: "v1", kind: "Node", name: node, uid };
    const answer = new Deferred<{ readonly block: string; readonly atMs: number }>();
    this.#waiting.set(name, answer);
    const sentMs = performance.now();
    const draft = { metadata: { name, ownerReferences: [owner] }, spec: { nodeName: node, poolName: POOL } };
    await this.#api.create(blockRequests, draft, { signal });
    const timer = setTimeout(
      () => answer.reject(new Error(`${name} was not answered in ${ANSWER_TIMEOUT_MS / 1000} s`)),
      ANSWER_TIMEOUT_MS,
    );
    const { block, atMs } = await answer.promise.finally(() => clearTimeout(timer));
    await this.#api.delete(blockRequests, { name }, { signal });
    return { block, ms: atMs - sentMs, atMs };
  }

  /** Releases a block: deletes it, then removes its finalizer. */
  async giveBack(block: string): Promise<void> {
    const signal = this.#signal;
    try {
      await this.#api.delete(addressBlocks, { name: block }, { signal });
      const patch = { type: "merge", body: { metadata: { finalizers: null } } } as const;
      await this.#api.patch(addressBlocks, { name: block }, patch, { signal });
    } catch (error) {
      // The controller has collected the block, because its node was deleted.
      if (!isKubeError(error, "not-found")) throw error;
    }
  }

  #see(request: BlockRequest): void {
    const { name } = request.metadata;
    const waiting = this.#waiting.get(name);
    const result = blockRequestResult(request);
    if (waiting === undefined || result.state === "in-progress") return;
    this.#waiting.delete(name);
    if (result.state === "failed") waiting.reject(new Error(`${name} was refused: ${result.reason}`));
    else waiting.resolve({ block: result.addressBlockName, atMs: performance.now() });
  }
}
