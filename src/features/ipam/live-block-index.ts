import type { AbortOptions } from "#base/async";
import { Cidr } from "#base/ip";
import type { KubeApi } from "#kube/client";
import { type AddressBlock, coilResources, POOL_LABEL } from "#kube/coil";
import { BlockIndex, type IndexedBlock } from "./block-index.ts";

const { addressBlocks } = coilResources;

/** A {@link BlockIndex} that is filled from the API server, each time when it may lack blocks. Its methods reject with `KubeError`. */
export class LiveBlockIndex {
  readonly index = new BlockIndex();
  readonly #api: KubeApi;
  /** True if blocks may be missing: the next use first lists all blocks. */
  #isStale = true;
  #listing: Promise<void> | undefined;

  constructor(api: KubeApi) {
    this.#api = api;
  }

  /** Call this if the index may lack blocks, or have blocks that are gone: its next use lists all blocks. */
  markStale(): void {
    this.#isStale = true;
  }

  /** Lists all blocks when some may not be known. Callers at the same time share one list. */
  async refresh({ signal }: AbortOptions): Promise<void> {
    while (this.#isStale) {
      this.#listing ??= this.#listAll({ signal }).finally(() => {
        this.#listing = undefined;
      });
      await this.#listing;
    }
  }

  /** Lists the blocks of one pool. */
  async listPool(pool: string, { signal }: AbortOptions): Promise<readonly AddressBlock[]> {
    const since = this.index.epoch;
    const { items } = await this.#api.listAll(addressBlocks, { labelSelector: `${POOL_LABEL}=${pool}`, signal });
    this.index.replace(items.map(indexedBlock), { since, pool });
    return items;
  }

  async #listAll({ signal }: AbortOptions): Promise<void> {
    const since = this.index.epoch;
    this.#isStale = false;
    try {
      const { items } = await this.#api.listAll(addressBlocks, { signal });
      this.index.replace(items.map(indexedBlock), { since });
    } catch (error) {
      this.#isStale = true;
      throw error;
    }
  }
}

/** A malformed prefix, written by hand, overlaps nothing. */
function indexedBlock({ metadata, ipv4, ipv6 }: AddressBlock): IndexedBlock {
  const cidrs = [ipv4, ipv6].flatMap((text) => (text === undefined ? [] : (Cidr.tryParse(text) ?? [])));
  return { name: metadata.name, pool: metadata.labels?.[POOL_LABEL] ?? "", cidrs };
}
