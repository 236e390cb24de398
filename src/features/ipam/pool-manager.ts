import { type AbortOptions, KeyedMutex } from "#base/async";
import type { Clock } from "#base/clock";
import type { Cidr } from "#base/ip";
import type { Logger } from "#base/log";
import { findObject, isKubeError, type KubeApi } from "#kube/client";
import {
  type AddressBlock,
  type AddressPool,
  type BlockCidrs,
  blockCidrs,
  blockName,
  coilResources,
  maxBlocks,
  POOL_LABEL,
  type PoolLayout,
  parsePool,
  validatePoolCreate,
} from "#kube/coil";
import { draftOf } from "./block-draft.ts";
import { prefixesOf } from "./block-index.ts";
import { type KnownBlock, LiveBlockIndex } from "./live-block-index.ts";
import { type BlockAllocation, PoolIndex } from "./pool-index.ts";

const { addressBlocks, addressPools } = coilResources;

/** The result of carving a block. */
export type Carved =
  | { readonly kind: "block"; readonly name: string }
  /** `overlap`: a block that shares addresses with the rest of the pool, for example `default-3 (10.1.0.0/27)`. */
  | { readonly kind: "exhausted"; readonly overlap?: string | undefined }
  /** The pool is being deleted; its remaining blocks keep it until their pods have ended. */
  | { readonly kind: "deleting" }
  | { readonly kind: "pool-not-found" }
  /** The pool's spec cannot be used; `fault` names the field and its fault. */
  | { readonly kind: "invalid"; readonly fault: string };

/** The next block, reserved. */
interface Place {
  readonly kind: "place";
  readonly index: number;
  readonly cidrs: BlockCidrs;
}

/** The spec of a pool that was stored without a spec because the schema was not checked: it has faults and no blocks. */
const EMPTY_SPEC = { subnets: [] };

/** A pool that seems exhausted is listed again at most once in this time, in milliseconds. */
const LIST_MS = 10_000;

/** The metrics of one pool. */
export interface PoolStats {
  readonly pool: string;
  readonly maxBlocks: number;
  readonly allocatedBlocks: number;
}

interface PoolState {
  readonly index: PoolIndex;
  /** The number of blocks that the pool can have; 0 while the spec cannot be used. */
  maxBlocks: number;
  /** The fault that makes the spec unusable. A pool with a fault can be stored if no webhook checks it. */
  fault: string | undefined;
  /** The first block that parts of the pool overlap, found at the last carving. */
  overlap: string | undefined;
  /** The index may differ from the API server: blocks are listed before its next use. */
  stale: boolean;
  /** The time of the last list because the pool seemed exhausted, by the monotonic clock. */
  listedAt: number;
}

/**
 * Carves blocks out of pools (docs/spec/pod-network.md#3.1). Allocations of one pool run one after the other, those of several pools
 * run concurrently; no block is made that overlaps another of any pool. All methods reject with `KubeError` and can then be called again.
 */
export class PoolManager {
  readonly #api: KubeApi;
  readonly #log: Logger;
  readonly #clock: Clock;
  readonly #allocation: BlockAllocation;
  readonly #pools = new Map<string, PoolState>();
  readonly #locks = new KeyedMutex();
  readonly #blocks: LiveBlockIndex;

  constructor(
    deps: { readonly api: KubeApi; readonly log: Logger; readonly clock: Clock },
    options: { readonly allocation: BlockAllocation },
  ) {
    this.#api = deps.api;
    this.#blocks = new LiveBlockIndex(deps.api);
    this.#log = deps.log;
    this.#clock = deps.clock;
    this.#allocation = options.allocation;
  }

  /** Every pool that is known, for metrics. */
  get stats(): readonly PoolStats[] {
    return [...this.#pools].map(([pool, state]) => ({
      pool,
      maxBlocks: state.maxBlocks,
      allocatedBlocks: state.index.size,
    }));
  }

  /**
   * Uses these blocks as all blocks of the cluster, so that they need not be listed. They must come from a cache that was filled by a live
   * list, and {@link PoolManager.noteBlockGone} must be called for each block that is deleted after that list. Call it before anything
   * else.
   */
  adopt(blocks: Iterable<KnownBlock>): void {
    this.#blocks.adopt(blocks);
  }

  /** Call this for a deleted block: its index in the pool becomes free. */
  noteBlockGone({ metadata: { name, uid, labels }, index }: Pick<KnownBlock, "metadata" | "index">): void {
    if (!this.#blocks.noteGone(name, uid)) return;
    this.#pools.get(labels?.[POOL_LABEL] ?? "")?.index.release(index);
  }

  /** The name of the block that was made for a request. */
  async madeFor(requestUid: string, options: AbortOptions): Promise<string | undefined> {
    await this.#blocks.refresh(options);
    return this.#blocks.index.madeFor(requestUid);
  }

  /** Reads the pool again and, if the pool is known, its blocks too. Returns the number of its blocks; `undefined` for a deleted pool. */
  sync(pool: string, options: AbortOptions): Promise<number | undefined> {
    return this.#locks.run(
      pool,
      async () => {
        // A block without a pool label belongs to no pool.
        const object = pool === "" ? undefined : await findObject(this.#api, addressPools, { name: pool }, options);
        if (object === undefined) {
          this.#pools.delete(pool);
          this.#blocks.markStale();
          return undefined;
        }
        const isNew = !this.#pools.has(pool);
        const state = this.#stateOf(pool);
        if (isNew && object.metadata.deletionTimestamp === undefined) {
          await this.#refresh(object, state, options);
          return state.index.size;
        }
        this.#readSpec(object, state);
        state.index.reset(await this.#blocks.listPool(pool, options));
        state.stale = false;
        return state.index.size;
      },
      options,
    );
  }

  /** Makes a block for a node. The block has a label with the request's uid, by which a repeated call can find it. */
  carve(pool: string, node: string, requestUid: string, options: AbortOptions): Promise<Carved> {
    return this.#locks.run(pool, () => this.#carve(pool, node, requestUid, options), options);
  }

  async #carve(pool: string, node: string, requestUid: string, options: AbortOptions): Promise<Carved> {
    const object = await findObject(this.#api, addressPools, { name: pool }, options);
    if (object === undefined) {
      this.#pools.delete(pool);
      return { kind: "pool-not-found" };
    }
    if (object.metadata.deletionTimestamp !== undefined) return { kind: "deleting" };
    const state = this.#stateOf(pool);
    await this.#refresh(object, state, options);
    if (state.fault !== undefined) return { kind: "invalid", fault: state.fault };
    const layout = parsePool(object.spec ?? EMPTY_SPEC);
    for (let tries = 0; tries <= state.maxBlocks; tries += 1) {
      await this.#blocks.refresh(options);
      // After a creation that failed, the list may show a block that an earlier leader has made for this request.
      const made = tries === 0 ? undefined : this.#blocks.index.madeFor(requestUid);
      if (made !== undefined) return { kind: "block", name: made };
      let place = this.#place(pool, layout, state, requestUid);
      if (place.kind === "exhausted" && this.#mayList(state)) {
        // A block that was created and deleted while the watch was interrupted is in the index, and no event reports its deletion.
        state.index.reset(await this.#blocks.listPool(pool, options));
        place = this.#place(pool, layout, state, requestUid);
      }
      if (place.kind === "exhausted") return place;
      const block = await this.#create(object, state, place, { node, requestUid }, options);
      if (block !== undefined) return { kind: "block", name: block.metadata.name };
    }
    return { kind: "exhausted" };
  }

  /** Returns true if an exhausted pool may be listed once more: a list of a large pool takes half a second. */
  #mayList(state: PoolState): boolean {
    const now = this.#clock.monotonic();
    if (now - state.listedAt < LIST_MS) return false;
    state.listedAt = now;
    return true;
  }

  /** Finds and reserves the next block. Nothing is awaited, so two pools cannot choose the same block. */
  #place(
    pool: string,
    layout: PoolLayout,
    state: PoolState,
    request: string,
  ): Place | { readonly kind: "exhausted"; readonly overlap?: string } {
    let overlap: string | undefined;
    let cidrs: BlockCidrs | undefined;
    const stepsOver = (index: number): number => {
      cidrs = blockCidrs(layout, index);
      const other = cidrs && this.#blocks.index.overlapping(prefixesOf(cidrs), blockName(pool, index));
      if (cidrs === undefined || other === undefined) return 0;
      overlap ??= `${other.name} (${other.cidr})`;
      return blocksUnder(layout, cidrs, other.cidr);
    };
    const index = state.index.next(state.maxBlocks, this.#allocation, stepsOver);
    if (overlap !== undefined && overlap !== state.overlap) {
      this.#log.warn("parts of an AddressPool overlap a block and are not used", { pool, block: overlap });
    }
    state.overlap = overlap;
    if (index === undefined || cidrs === undefined)
      return { kind: "exhausted", ...(overlap === undefined ? {} : { overlap }) };
    const name = blockName(pool, index);
    this.#blocks.index.reserve({ name, pool, cidrs: prefixesOf(cidrs), index, request, uid: undefined });
    return { kind: "place", index, cidrs };
  }

  /** `undefined` if another block already has that name. */
  async #create(
    pool: AddressPool,
    state: PoolState,
    { index, cidrs }: Place,
    labels: { readonly node: string; readonly requestUid: string },
    options: AbortOptions,
  ): Promise<AddressBlock | undefined> {
    const draft = draftOf(pool, index, cidrs, labels);
    let uid: string | undefined;
    try {
      const block = await this.#api.create(addressBlocks, draft, options);
      uid = block.metadata.uid;
      state.index.mark(index);
      return block;
    } catch (error) {
      // After any failure both indexes may be wrong until the next list.
      state.stale = true;
      this.#blocks.markStale();
      if (!isKubeError(error, "already-exists")) throw error;
      this.#log.warn("a block exists although the pool's index showed it as free; the index is corrected", {
        pool: pool.metadata.name,
        block: draft.metadata.name,
      });
      state.index.mark(index);
      return undefined;
    } finally {
      this.#blocks.index.settle(draft.metadata.name, uid);
    }
  }

  async #refresh(pool: AddressPool, state: PoolState, options: AbortOptions): Promise<void> {
    this.#readSpec(pool, state);
    if (!state.stale) return;
    await this.#blocks.refresh(options);
    state.index.reset(this.#blocks.index.indexesOf(pool.metadata.name));
    state.stale = false;
  }

  #readSpec(pool: AddressPool, state: PoolState): void {
    const fault = faultOf(pool);
    if (fault !== undefined && fault !== state.fault) {
      this.#log.warn("an AddressPool is not valid and cannot be used", { pool: pool.metadata.name, fault });
    }
    state.fault = fault;
    state.maxBlocks = fault === undefined ? maxBlocks(parsePool(pool.spec ?? EMPTY_SPEC)) : 0;
  }

  #stateOf(pool: string): PoolState {
    const known = this.#pools.get(pool);
    if (known !== undefined) return known;
    const state: PoolState = {
      index: new PoolIndex(),
      maxBlocks: 0,
      fault: undefined,
      overlap: undefined,
      stale: true,
      listedAt: Number.NEGATIVE_INFINITY,
    };
    this.#pools.set(pool, state);
    return state;
  }
}

/** The number of blocks, from this one on and in the same subnet, that `other` covers; a pool may have millions of small blocks. */
function blocksUnder({ subnets }: PoolLayout, cidrs: BlockCidrs, other: Cidr): number {
  const own = other.family === 4 ? cidrs.ipv4 : cidrs.ipv6;
  if (own === undefined || !other.contains(own)) return 1;
  const ends = subnets
    .flatMap(({ ipv4, ipv6 }) => (other.family === 4 ? ipv4 : ipv6) ?? [])
    .filter((subnet) => subnet.contains(own))
    .map((subnet) => subnet.last);
  const [last = other.last] = [other.last, ...ends].sort((a, b) => a.compare(b));
  return Number((last.value + 1n - own.base.value) / own.size);
}

/** The first fault of a stored pool, as `spec.subnets[0].ipv4: Invalid value: …`. */
function faultOf(pool: AddressPool): string | undefined {
  const [first] = validatePoolCreate(pool);
  return first === undefined ? undefined : `${first.field}: ${first.message}`;
}
