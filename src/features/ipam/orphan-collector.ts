import type { AbortOptions } from "#base/async";
import type { Clock } from "#base/clock";
import type { Logger } from "#base/log";
import { findObject, isApiFailure, type KubeApi, resources } from "#kube/client";
import { type AddressBlock, NODE_LABEL } from "#kube/coil";
import { deleteBlock } from "./block-deletion.ts";
import { IpamError } from "./errors.ts";

/** While the grace of a Node runs, its pods are listed at least this often, in milliseconds. */
const MAX_POLL_MS = 10_000;
/** The minimum time between two lists of a Node's pods, in milliseconds. */
const MIN_POLL_MS = 250;

export interface OrphanCollectorOptions {
  /** The time for which the Node and every pod bound to it must be absent, in milliseconds. */
  readonly graceMs: number;
}

/**
 * A cached view of the cluster. It may be old: a block that the cache lacks is collected later, and no block is deleted without live reads.
 */
export interface KnownCluster {
  readonly blocks: Iterable<Pick<AddressBlock, "metadata">>;
  /** The names of the Nodes that exist. */
  readonly nodes: { has(name: string): boolean };
}

/** The result of one pass. */
export interface OrphanPass {
  readonly deleted: number;
  /** When the next pass is due, in milliseconds; `undefined`: no block waits for its grace to end. */
  readonly nextPassInMs: number | undefined;
}

/**
 * Deletes the blocks of deleted Nodes (docs/spec/pod-network.md#3.4). A Node object can be deleted while its machine and pods keep running;
 * the next heartbeat of its kubelet then creates it again. So a block is deleted only if its Node does not exist, no Pod object is bound to
 * that Node's name, and neither was seen during a grace. Both are read live again before each deletion.
 *
 * The memory has, for each absent Node with blocks, the time at which it or one of its pods was last seen. It is bounded by the blocks. A
 * new leader begins each grace again.
 */
export class OrphanCollector {
  readonly #api: KubeApi;
  readonly #known: (options: AbortOptions) => Promise<KnownCluster>;
  readonly #log: Logger;
  readonly #clock: Clock;
  readonly #graceMs: number;
  /** Node name → monotonic milliseconds at which the Node, or a pod of it, was last seen, or at which its absence was first noticed. */
  readonly #lastSeen = new Map<string, number>();
  /** Node name → monotonic milliseconds of the last search for the Node and its pods. */
  readonly #lookedAt = new Map<string, number>();

  constructor(
    deps: {
      readonly api: KubeApi;
      /**
       * Read at the start of each pass. In a large cluster this must be a cache, because many passes follow each other while Nodes are
       * deleted.
       */
      readonly known: (options: AbortOptions) => Promise<KnownCluster>;
      readonly log: Logger;
      readonly clock: Clock;
    },
    options: OrphanCollectorOptions,
  ) {
    this.#api = deps.api;
    this.#known = deps.known;
    this.#log = deps.log;
    this.#clock = deps.clock;
    this.#graceMs = options.graceMs;
  }

  /** Call this for each watch event of this Node, deletions included: its grace begins again. */
  noteNode(node: string): void {
    if (this.#lastSeen.has(node)) this.#lastSeen.set(node, this.#clock.monotonic());
  }

  /**
   * One pass. A block that cannot be deleted does not stop the others; all failures are thrown together as
   * {@link IpamError}. Rejects as `known` does; the caller then tries again.
   */
  async collect(options: AbortOptions): Promise<OrphanPass> {
    const orphans = orphansByNode(await this.#known(options));
    for (const node of this.#lastSeen.keys()) if (!orphans.has(node)) this.#lastSeen.delete(node);
    for (const node of this.#lookedAt.keys()) if (!this.#lastSeen.has(node)) this.#lookedAt.delete(node);
    const failures: unknown[] = [];
    let deleted = 0;
    for (const [node, blocks] of orphans) {
      if (!this.#isDue(node)) continue;
      try {
        // For most Nodes the grace has not ended: the check takes two requests, which the API server may answer from its cache.
        if (!(await this.#isForsaken(node, { ...options, resourceVersion: "0" }))) continue;
      } catch (error) {
        if (!isApiFailure(error)) throw error;
        failures.push(error);
        continue;
      }
      for (const block of blocks) {
        try {
          const mayGo = async (live: AddressBlock): Promise<boolean> =>
            nodeOf(live) === node && (await this.#isForsaken(node, options));
          if (!(await deleteBlock(this.#api, block.metadata, mayGo, options))) continue;
          deleted += 1;
          this.#log.info("deleted an orphan block; its Node no longer exists", { block: block.metadata.name, node });
        } catch (error) {
          if (!isApiFailure(error)) throw error;
          failures.push(error);
          // The next pass tries again.
          this.#lookedAt.delete(node);
        }
      }
    }
    if (failures.length > 0) {
      const cause = new AggregateError(failures);
      throw new IpamError("api-unavailable", `${failures.length} orphan blocks could not be deleted`, { cause });
    }
    return { deleted, nextPassInMs: this.#nextLookMs() };
  }

  /** Each deleted Node causes a pass, and many Nodes may be deleted at a time: a pass skips the Nodes that it searched for a moment ago. */
  #isDue(node: string): boolean {
    const now = this.#clock.monotonic();
    const graceEnd = (this.#lastSeen.get(node) ?? now) + this.#graceMs;
    const lookedAt = this.#lookedAt.get(node) ?? Number.NEGATIVE_INFINITY;
    // The first check after the end of the grace is not delayed. Later checks of blocks that stay keep the usual interval.
    if (now - lookedAt < MAX_POLL_MS && !(now >= graceEnd && lookedAt < graceEnd)) return false;
    this.#lookedAt.set(node, now);
    return true;
  }

  /** True when neither the Node nor a pod bound to it exists now, nor has been seen for the grace. */
  async #isForsaken(node: string, options: ReadOptions): Promise<boolean> {
    const now = this.#clock.monotonic();
    const lastSeen = this.#lastSeen.get(node);
    if (lastSeen === undefined) {
      const graceSeconds = this.#graceMs / 1000;
      this.#log.info("the Node of some blocks was deleted; its blocks are kept for --node-gone-grace", {
        node,
        graceSeconds,
      });
      this.#lastSeen.set(node, now);
    }
    if (await this.#isSeen(node, options)) {
      this.#lastSeen.set(node, this.#clock.monotonic());
      return false;
    }
    // A watch may have reported an event of this Node during these requests.
    return now - (this.#lastSeen.get(node) ?? now) >= this.#graceMs;
  }

  async #isSeen(node: string, options: ReadOptions): Promise<boolean> {
    // No Node has an empty name; pods that are bound to no Node wait for a scheduler.
    if (node === "") return false;
    if ((await findObject(this.#api, resources.nodes, { name: node }, options)) !== undefined) return true;
    const pods = await this.#api.list(resources.pods, { ...options, fieldSelector: `spec.nodeName=${node}`, limit: 1 });
    return pods.items.length > 0;
  }

  #nextLookMs(): number | undefined {
    if (this.#lastSeen.size === 0) return undefined;
    const now = this.#clock.monotonic();
    const rests = Array.from(this.#lastSeen, ([node, seenAt]) => {
      const graceEnd = seenAt + this.#graceMs;
      const lookedAt = this.#lookedAt.get(node) ?? Number.NEGATIVE_INFINITY;
      return lookedAt < graceEnd ? graceEnd - now : lookedAt + MAX_POLL_MS - now;
    });
    return Math.max(MIN_POLL_MS, Math.min(...rests, MAX_POLL_MS));
  }
}

/** `resourceVersion` "0": the state that the server has at hand. Absent: the most recent. */
interface ReadOptions extends AbortOptions {
  readonly resourceVersion?: "0";
}

/** Blocks by the name of a Node that does not exist. */
function orphansByNode({ blocks, nodes }: KnownCluster): Map<string, Pick<AddressBlock, "metadata">[]> {
  const orphans = new Map<string, Pick<AddressBlock, "metadata">[]>();
  for (const block of blocks) {
    const node = nodeOf(block);
    if (nodes.has(node)) continue;
    const ofNode = orphans.get(node);
    if (ofNode === undefined) orphans.set(node, [block]);
    else ofNode.push(block);
  }
  return orphans;
}

/** The name of the Node that a block belongs to; empty if its label is missing. */
function nodeOf({ metadata }: Pick<AddressBlock, "metadata">): string {
  return metadata.labels?.[NODE_LABEL] ?? "";
}
