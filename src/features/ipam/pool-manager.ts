import { type AbortOptions, KeyedMutex } from "#base/async";
import type { Logger } from "#base/log";
import { findObject, isKubeError, type KubeApi } from "#kube/client";
import {
  type AddressBlock,
  type AddressPool,
  blockCidrs,
  blockName,
  COIL_FINALIZER,
  coilResources,
  maxBlocks,
  NODE_LABEL,
  POOL_LABEL,
  parsePool,
  REQUEST_LABEL,
  validatePoolCreate,
} from "#kube/coil";
import { type BlockAllocation, PoolIndex } from "./pool-index.ts";

const { addressBlocks, addressPools } = coilResources;

/** What came of carving a block. */
export type Carved =
  | { readonly kind: "block"; readonly block: AddressBlock }
  | { readonly kind: "exhausted" }
  | { readonly kind: "pool-not-found" }
  /** The pool's spec cannot be used; `fault` names the field and what is wrong with it. */
  | { readonly kind: "invalid"; readonly fault: string };

/** One pool as metrics show it. */
export interface PoolStats {
  readonly pool: string;
  readonly maxBlocks: number;
  readonly allocatedBlocks: number;
}

interface PoolState {
  readonly index: PoolIndex;
  /** 0 while the spec cannot be used. */
  maxBlocks: number;
  /** What makes the spec unusable; such a pool passes where no webhook checks it. */
  fault: string | undefined;
  /** The index may not be what the API server has: list again before the next use. */
  stale: boolean;
}

/**
 * Carves blocks out of pools (spec pod-network 3.1). Allocations of one pool run one after the other, pools are
 * independent. All methods reject with `KubeError` and can then be called again.
 */
export class PoolManager {
  readonly #api: KubeApi;
  readonly #log: Logger;
  readonly #allocation: BlockAllocation;
  readonly #pools = new Map<string, PoolState>();
  readonly #locks = new KeyedMutex();

  constructor(
    deps: { readonly api: KubeApi; readonly log: Logger },
    options: { readonly allocation: BlockAllocation },
  ) {
    this.#api = deps.api;
    this.#log = deps.log;
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

  /** Reads the pool and its blocks anew. Returns how many blocks it has; `undefined` for a pool that is gone. */
  sync(pool: string, options: AbortOptions): Promise<number | undefined> {
    return this.#locks.run(
      pool,
      async () => {
        const object = await findObject(this.#api, addressPools, { name: pool }, options);
        if (object === undefined) {
          this.#pools.delete(pool);
          return undefined;
        }
        const state = this.#stateOf(pool);
        state.stale = true;
        await this.#refresh(object, state, options);
        return state.index.size;
      },
      options,
    );
  }

  /** Makes a block for a node. The block bears the request's uid, by which a repeated call can find it. */
  carve(pool: string, node: string, requestUid: string, options: AbortOptions): Promise<Carved> {
    return this.#locks.run(pool, () => this.#carve(pool, node, requestUid, options), options);
  }

  async #carve(pool: string, node: string, requestUid: string, options: AbortOptions): Promise<Carved> {
    const object = await findObject(this.#api, addressPools, { name: pool }, options);
    if (object === undefined) {
      this.#pools.delete(pool);
      return { kind: "pool-not-found" };
    }
    if (object.metadata.deletionTimestamp !== undefined) return { kind: "exhausted" };
    const state = this.#stateOf(pool);
    await this.#refresh(object, state, options);
    if (state.fault !== undefined) return { kind: "invalid", fault: state.fault };
    for (let tries = 0; tries <= state.maxBlocks; tries += 1) {
      const index = state.index.next(state.maxBlocks, this.#allocation);
      if (index === undefined) return { kind: "exhausted" };
      const block = await this.#create(object, state, index, node, requestUid, options);
      if (block !== undefined) return { kind: "block", block };
    }
    return { kind: "exhausted" };
  }

  /** `undefined` when another block has that name already. */
  async #create(
    pool: AddressPool,
    state: PoolState,
    index: number,
    node: string,
    requestUid: string,
    options: AbortOptions,
  ): Promise<AddressBlock | undefined> {
    const { name, uid } = pool.metadata;
    const cidrs = blockCidrs(parsePool(pool.spec), index);
    if (cidrs === undefined) return undefined;
    const owner = {
      apiVersion: "coil.cybozu.com/v2",
      kind: "AddressPool",
      name,
      uid,
      controller: true,
      blockOwnerDeletion: true,
    };
    const draft = {
      metadata: {
        name: blockName(name, index),
        labels: { [POOL_LABEL]: name, [NODE_LABEL]: node, [REQUEST_LABEL]: requestUid },
        finalizers: [COIL_FINALIZER],
        ownerReferences: [owner],
      },
      index,
      ...(cidrs.ipv4 === undefined ? {} : { ipv4: cidrs.ipv4.toString() }),
      ...(cidrs.ipv6 === undefined ? {} : { ipv6: cidrs.ipv6.toString() }),
    };
    try {
      const block = await this.#api.create(addressBlocks, draft, options);
      state.index.mark(index);
      return block;
    } catch (error) {
      // Whatever happened, the index is not to be trusted before the next list.
      state.stale = true;
      if (!isKubeError(error, "already-exists")) throw error;
      this.#log.warn("a block existed that was thought free", { pool: name, block: draft.metadata.name });
      state.index.mark(index);
      return undefined;
    }
  }

  async #refresh(pool: AddressPool, state: PoolState, options: AbortOptions): Promise<void> {
    const fault = faultOf(pool);
    if (fault !== undefined && fault !== state.fault) {
      this.#log.warn("AddressPool cannot be used", { pool: pool.metadata.name, fault });
    }
    state.fault = fault;
    state.maxBlocks = fault === undefined ? maxBlocks(parsePool(pool.spec)) : 0;
    if (!state.stale) return;
    const labelSelector = `${POOL_LABEL}=${pool.metadata.name}`;
    const { items } = await this.#api.listAll(addressBlocks, { labelSelector, signal: options.signal });
    state.index.reset(items.map((block) => block.index));
    state.stale = false;
  }

  #stateOf(pool: string): PoolState {
    const known = this.#pools.get(pool);
    if (known !== undefined) return known;
    const state: PoolState = { index: new PoolIndex(), maxBlocks: 0, fault: undefined, stale: true };
    this.#pools.set(pool, state);
    return state;
  }
}

/** The first thing that is wrong with a stored pool, as `spec.subnets[0].ipv4: Invalid value: …`. */
function faultOf(pool: AddressPool): string | undefined {
  const [first] = validatePoolCreate(pool);
  return first === undefined ? undefined : `${first.field}: ${first.message}`;
}
