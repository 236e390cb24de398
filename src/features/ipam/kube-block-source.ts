import { type AbortOptions, Backoff, sleep, withDeadline } from "#base/async";
import { Cidr, IpParseError } from "#base/ip";
import type { Logger } from "#base/log";
import { findObject, isApiFailure, isKubeError, type KubeApi, resources } from "#kube/client";
import {
  type AddressBlock,
  type BlockRequest,
  blockRequestName,
  blockRequestResult,
  COIL_FINALIZER,
  coilResources,
  NODE_LABEL,
  otherBlockRequestName,
  POOL_LABEL,
  RESERVED_LABEL,
} from "#kube/coil";
import { deleteBlock } from "./block-deletion.ts";
import { DELETED_POOL, INVALID_POOL } from "./block-requests.ts";
import type { BlockListing, BlockSource, OwnedBlock } from "./block-source.ts";
import { IpamError } from "./errors.ts";

const { addressBlocks, blockRequests } = coilResources;
/** The maximum number of tries of an optimistic write before the conflict is reported. */
const MAX_CONFLICTS = 8;

export interface KubeBlockSourceOptions {
  readonly nodeName: string;
  /** The timeout of a request, in milliseconds. Default 10,000 (docs/spec/pod-network.md#4.6). */
  readonly requestTimeoutMs?: number;
}

/** This node's blocks through the API server: it writes BlockRequests and reads AddressBlocks (docs/spec/pod-network.md#4.6, #4.7). */
export class KubeBlockSource implements BlockSource {
  readonly #api: KubeApi;
  readonly #log: Logger;
  readonly #nodeName: string;
  readonly #requestTimeoutMs: number;
  /** Names of this node's blocks that cannot be read, and why. */
  readonly #invalid = new Map<string, string>();
  /** Pool → its request that was awaited last and is not settled. Bounded by the existing pools. */
  readonly #awaited = new Map<string, { readonly name: string; readonly uid: string }>();

  constructor(deps: { readonly api: KubeApi; readonly log: Logger }, options: KubeBlockSourceOptions) {
    this.#api = deps.api;
    this.#log = deps.log;
    this.#nodeName = options.nodeName;
    this.#requestTimeoutMs = options.requestTimeoutMs ?? 10_000;
  }

  async list(options: AbortOptions): Promise<BlockListing> {
    const labelSelector = `${NODE_LABEL}=${this.#nodeName}`;
    return translated("list this node's blocks", async () => {
      const { items } = await this.#api.listAll(addressBlocks, { labelSelector, signal: options.signal });
      const parsed = items.map((block) => this.#parse(block));
      const unreadable = items.filter((_block, at) => parsed[at] === undefined).map(({ metadata }) => metadata.name);
      return { blocks: parsed.filter((block) => block !== undefined), unreadable: new Set(unreadable) };
    });
  }

  async request(pool: string, known: ReadonlySet<string>, options: AbortOptions): Promise<void> {
    await translated(`request a block of pool ${pool}`, () =>
      withDeadline(
        this.#requestTimeoutMs,
        async (signal) => {
          const { request, nodeUid } = await this.#ensureRequest(pool, known, signal);
          await this.#awaitAnswer(request, pool, nodeUid, signal);
        },
        options,
      ).catch((error: unknown) => {
        if (error instanceof DOMException && error.name === "TimeoutError") {
          const seconds = this.#requestTimeoutMs / 1000;
          const message = `pool ${pool}: no controller answered the request for a block within ${seconds} s; is coil-ipam-controller running?`;
          throw new IpamError("block-timeout", message, { cause: error });
        }
        throw error;
      }),
    );
  }

  async settle(pool: string, options: AbortOptions): Promise<void> {
    const request = this.#awaited.get(pool);
    if (request === undefined) return;
    this.#awaited.delete(pool);
    await this.#deleteRequest(request, options.signal).catch((error: unknown) => {
      if (!isApiFailure(error)) throw error;
      // The answered request stays; the next request finds that its block is known, and replaces it.
      this.#log.warn("an answered block request could not be removed", { pool, error: error.message });
    });
  }

  async removeAnswered(wantedPools: { has(pool: string): boolean }, options: AbortOptions): Promise<number> {
    return translated("remove answered requests of this node", async () => {
      // The server may answer from its cache, because every node lists all requests. The next call removes a request that the cache does
      // not have yet.
      const { items } = await this.#api.listAll(blockRequests, { ...options, resourceVersion: "0" });
      const left = items.filter((request) => {
        const { nodeName, poolName } = request.spec ?? {};
        const answered = blockRequestResult(request).state !== "in-progress";
        return nodeName === this.#nodeName && answered && !wantedPools.has(poolName ?? "");
      });
      for (const { metadata } of left) await this.#deleteRequest(metadata, options.signal);
      return left.length;
    });
  }

  async release(block: OwnedBlock, options: AbortOptions): Promise<void> {
    await translated(`release block ${block.name}`, () => this.#release(block, options.signal));
  }

  async #release(block: OwnedBlock, signal: AbortSignal | undefined): Promise<void> {
    const isOurs = ({ metadata }: AddressBlock): boolean => metadata.labels?.[NODE_LABEL] === this.#nodeName;
    await deleteBlock(this.#api, block, isOurs, { signal });
  }

  /**
   * The only request of this pool and node that waits for an answer: an earlier request that is still valid, or a new request. One of another
   * pool or node, which has the name by chance, is left alone.
   */
  async #ensureRequest(
    pool: string,
    known: ReadonlySet<string>,
    signal: AbortSignal,
  ): Promise<{ readonly request: BlockRequest; readonly nodeUid: string }> {
    const otherName = otherBlockRequestName(pool, this.#nodeName);
    // A request that waits under that name is used again, whoever has the first name by now.
    let name = this.#awaited.get(pool)?.name === otherName ? otherName : blockRequestName(pool, this.#nodeName);
    for (let tries = 0; ; tries += 1) {
      const node = await findObject(this.#api, resources.nodes, { name: this.#nodeName }, { signal });
      if (node === undefined)
        throw new IpamError("node-not-found", `node ${this.#nodeName} is not in the cluster (any more)`);
      const nodeUid = node.metadata.uid;
      try {
        const owner = { apiVersion: "v1", kind: "Node", name: this.#nodeName, uid: nodeUid };
        const request = await this.#api.create(
          blockRequests,
          { metadata: { name, ownerReferences: [owner] }, spec: { nodeName: this.#nodeName, poolName: pool } },
          { signal },
        );
        this.#awaited.set(pool, request.metadata);
        return { request, nodeUid };
      } catch (error) {
        // The name exists because of an earlier request, an earlier create whose answer was lost, or a Node that was created again
        // meanwhile.
        if (!isKubeError(error, "already-exists", "conflict", "invalid") || tries >= MAX_CONFLICTS) throw error;
      }
      const existing = await findObject(this.#api, blockRequests, { name }, { signal });
      if (existing === undefined) continue;
      const { nodeName, poolName } = existing.spec ?? {};
      if (nodeName !== this.#nodeName || poolName !== pool) {
        if (name === otherName) {
          const message = `pool ${pool}: BlockRequest ${name} is of pool ${poolName} and node ${nodeName}; delete it`;
          throw new IpamError("api-unavailable", message);
        }
        name = otherName;
      } else if (await this.#counts(existing, nodeUid, known, signal)) {
        this.#awaited.set(pool, existing.metadata);
        return { request: existing, nodeUid };
      } else {
        await this.#deleteRequest(existing.metadata, signal);
      }
    }
  }

  /** True if an existing request stands for the wanted block: it has no answer yet, or its block exists and is not known yet. */
  async #counts(
    request: BlockRequest,
    nodeUid: string,
    known: ReadonlySet<string>,
    signal: AbortSignal,
  ): Promise<boolean> {
    const ours = request.metadata.ownerReferences?.some((owner) => owner.uid === nodeUid) === true;
    if (!ours || request.metadata.deletionTimestamp !== undefined) return false;
    const result = blockRequestResult(request);
    if (result.state !== "complete") return result.state === "in-progress";
    if (known.has(result.addressBlockName)) return false;
    const block = await findObject(this.#api, addressBlocks, { name: result.addressBlockName }, { signal });
    return block?.metadata.labels?.[NODE_LABEL] === this.#nodeName && !isBeingDeleted(block.metadata);
  }

  async #deleteRequest(
    { name, uid }: { readonly name: string; readonly uid: string },
    signal: AbortSignal | undefined,
  ): Promise<void> {
    try {
      await this.#api.delete(blockRequests, { name }, { preconditions: { uid }, signal });
    } catch (error) {
      if (!isKubeError(error, "not-found", "conflict")) throw error;
    }
  }

  /** Watches one request until it is answered. The watch starts at the version that was read, so nothing is missed. */
  async #awaitAnswer(request: BlockRequest, pool: string, nodeUid: string, signal: AbortSignal): Promise<void> {
    const { name, uid } = request.metadata;
    const backoff = new Backoff({ initialMs: 50, maxMs: 1000 });
    let current: BlockRequest | undefined = request;
    for (;;) {
      if (current === undefined || current.metadata.uid !== uid) {
        throw new IpamError(
          "api-unavailable",
          `pool ${pool}: the request for a block was removed before it was answered`,
        );
      }
      if (isAnswered(current, pool, nodeUid)) return;
      try {
        current = await this.#nextVersion(current, signal);
      } catch (error) {
        if (!isApiFailure(error)) throw error;
        await sleep(backoff.next(), { signal });
        current = await findObject(this.#api, blockRequests, { name }, { signal });
      }
    }
  }

  /** The next state of a request; `undefined` when it is deleted. After a watch that ends without an error the request is read. */
  async #nextVersion(request: BlockRequest, signal: AbortSignal): Promise<BlockRequest | undefined> {
    const { name, resourceVersion } = request.metadata;
    const fieldSelector = `metadata.name=${name}`;
    for await (const event of this.#api.watch(blockRequests, { fieldSelector, resourceVersion, signal })) {
      if (event.type === "BOOKMARK") continue;
      return event.type === "DELETED" ? undefined : event.object;
    }
    return findObject(this.#api, blockRequests, { name }, { signal });
  }

  /** Parses a block; `undefined` for a malformed block that an operator has written by hand. */
  #parse(block: AddressBlock): OwnedBlock | undefined {
    const { name, uid, labels = {} } = block.metadata;
    try {
      const parsed = {
        name,
        uid,
        pool: labels[POOL_LABEL] ?? "",
        index: block.index,
        ipv4: block.ipv4 === undefined ? undefined : Cidr.parse(block.ipv4),
        ipv6: block.ipv6 === undefined ? undefined : Cidr.parse(block.ipv6),
        reserved: labels[RESERVED_LABEL] === "true",
        deleting: isBeingDeleted(block.metadata),
      };
      const fault = faultOf(parsed);
      if (fault !== undefined) return this.#refuse(name, fault);
      this.#invalid.delete(name);
      return parsed;
    } catch (error) {
      if (!(error instanceof IpParseError)) throw error;
      return this.#refuse(name, error.message);
    }
  }

  /** Logs the fault of a block once, although blocks are listed many times. */
  #refuse(name: string, error: string): undefined {
    if (this.#invalid.get(name) !== error) {
      this.#log.warn("an AddressBlock is not valid and is ignored", { block: name, error });
    }
    this.#invalid.set(name, error);
  }
}

/** Returns why no address can be given out of a block with these prefixes; `undefined` if some can. Pure. */
function faultOf({ ipv4, ipv6 }: Pick<OwnedBlock, "ipv4" | "ipv6">): string | undefined {
  if (ipv4 === undefined && ipv6 === undefined) return "the block has neither an ipv4 nor an ipv6 prefix";
  if (ipv4?.family === 6) return `ipv4 is ${ipv4}, a prefix of IPv6`;
  if (ipv6?.family === 4) return `ipv6 is ${ipv6}, a prefix of IPv4`;
  // A pod has the addresses of one offset.
  if (ipv4 !== undefined && ipv6 !== undefined && ipv4.hostBits !== ipv6.hostBits)
    return `${ipv4} has ${ipv4.size} addresses, and ${ipv6} has ${ipv6.size}: both must have as many`;
  return undefined;
}

/** True if a block is being deleted. A block without our finalizer counts too: an earlier run of this process may have removed it. */
export function isBeingDeleted(block: Pick<AddressBlock["metadata"], "deletionTimestamp" | "finalizers">): boolean {
  return block.deletionTimestamp !== undefined || block.finalizers?.includes(COIL_FINALIZER) !== true;
}

/** Pure: true when a block was allotted. Throws {@link IpamError} if no block will be allotted. */
export function isAnswered(request: BlockRequest, pool: string, nodeUid: string): boolean {
  const result = blockRequestResult(request);
  if (result.state !== "failed") return result.state === "complete";
  if (result.reason === "pool not found") {
    const message = `pool ${pool} does not exist: create the AddressPool, or set another pool in the namespace's annotation coil.cybozu.com/pool`;
    throw new IpamError("pool-not-found", message);
  }
  if (result.reason === INVALID_POOL) {
    throw new IpamError("invalid-pool", `${result.message}: correct the AddressPool, or delete it and create it again`);
  }
  if (result.reason === DELETED_POOL) {
    const message = `${result.message}: set another pool in the namespace's annotation coil.cybozu.com/pool, or create the pool again once its last pods have ended`;
    throw new IpamError("pool-deleting", message);
  }
  if (result.reason === "node not found") {
    throw new IpamError("node-not-found", `the Node of UID ${nodeUid} is not in the cluster (any more)`);
  }
  const why = result.message === "" ? `pool ${pool} does not have free blocks (${result.reason})` : result.message;
  throw new IpamError("exhausted", `${why}: append a subnet to the AddressPool`);
}

/** Runs calls to the API server; their failures become {@link IpamError}. */
async function translated<T>(what: string, work: () => Promise<T>): Promise<T> {
  try {
    return await work();
  } catch (error) {
    if (!isApiFailure(error)) throw error;
    throw new IpamError("api-unavailable", `cannot ${what}: ${error.message}`, { cause: error });
  }
}
