import type { AbortOptions } from "#base/async";
import { Cidr } from "#base/ip";
import type { KubeApi } from "#kube/client";
import { type AddressBlock, coilResources, POOL_LABEL, REQUEST_LABEL } from "#kube/coil";
import { BlockIndex, type IndexedBlock } from "./block-index.ts";

const { addressBlocks } = coilResources;

/** The fields of a block that the controller needs. */
export type KnownBlock = Pick<AddressBlock, "metadata" | "index" | "ipv4" | "ipv6">;

/**
 * A {@link BlockIndex} that is filled from the API server: by a list whenever blocks may be missing in it, and by the deletions that a
 * watch reports. Its methods that list reject with `KubeError`.
 */
export class LiveBlockIndex {
  readonly index = new BlockIndex();
  readonly #api: KubeApi;
  /** True if blocks may be missing: the next use first lists all blocks. */
  #isStale = true;
  #listing: Promise<void> | undefined;
  /** The number of running lists. */
  #lists = 0;
  /**
   * UIDs of blocks that were deleted while lists were running; the results of these lists may still contain them. Empty while there is no
   * list.
   */
  readonly #goneMeanwhile = new Set<string>();

  constructor(api: KubeApi) {
    this.#api = api;
  }

  /** Call this if the index may lack blocks, or contain deleted blocks: its next use lists all blocks. */
  markStale(): void {
    this.#isStale = true;
  }

  /** Fills the index with all blocks of the cluster, from a cache that reports each later deletion. Call it before any block is created. */
  adopt(blocks: Iterable<KnownBlock>): void {
    this.index.replace(Array.from(blocks, indexedBlock), { since: this.index.epoch });
    this.#isStale = false;
  }

  /** Removes a deleted block. Returns false if a block of this name has another UID, or a UID that is not known. */
  noteGone(name: string, uid: string): boolean {
    if (this.#lists > 0) this.#goneMeanwhile.add(uid);
    return this.index.remove(name, uid);
  }

  /** Lists all blocks if some may not be known. Concurrent callers share one list. */
  async refresh({ signal }: AbortOptions): Promise<void> {
    while (this.#isStale) {
      this.#listing ??= this.#listAll({ signal }).finally(() => {
        this.#listing = undefined;
      });
      await this.#listing;
    }
  }

  /** Lists the blocks of one pool; returns their indexes within the pool. */
  async listPool(pool: string, options: AbortOptions): Promise<readonly number[]> {
    const found = await this.#list({ pool }, options);
    return found.map(({ index }) => index);
  }

  async #listAll(options: AbortOptions): Promise<void> {
    this.#isStale = false;
    try {
      await this.#list({}, options);
    } catch (error) {
      this.#isStale = true;
      throw error;
    }
  }

  async #list(selected: { readonly pool?: string }, { signal }: AbortOptions): Promise<readonly IndexedBlock[]> {
    const since = this.index.epoch;
    const labelSelector = selected.pool === undefined ? undefined : `${POOL_LABEL}=${selected.pool}`;
    this.#lists += 1;
    try {
      const { items } = await this.#api.listAll(addressBlocks, { labelSelector, signal });
      const found = items.filter(({ metadata }) => !this.#goneMeanwhile.has(metadata.uid)).map(indexedBlock);
      this.index.replace(found, { since, ...selected });
      return found;
    } finally {
      this.#lists -= 1;
      if (this.#lists === 0) this.#goneMeanwhile.clear();
    }
  }
}

/** A malformed prefix, written by hand, overlaps nothing. */
function indexedBlock({ metadata, index, ipv4, ipv6 }: KnownBlock): IndexedBlock {
  const { name, uid, labels = {} } = metadata;
  const cidrs = [ipv4, ipv6].flatMap((text) => (text === undefined ? [] : (Cidr.tryParse(text) ?? [])));
  return { name, uid, pool: labels[POOL_LABEL] ?? "", cidrs, index, request: labels[REQUEST_LABEL] ?? "" };
}
