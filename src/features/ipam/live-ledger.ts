import type { AbortOptions } from "#base/async";
import { Cidr } from "#base/ip";
import type { KubeApi } from "#kube/client";
import { type AddressBlock, coilResources, POOL_LABEL } from "#kube/coil";
import { BlockLedger, type LedgerBlock } from "./block-ledger.ts";

const { addressBlocks } = coilResources;

/** A {@link BlockLedger} that is filled from the API server, again whenever it may lack blocks. Its methods reject with `KubeError`. */
export class LiveLedger {
  readonly lines = new BlockLedger();
  readonly #api: KubeApi;
  /** Blocks may be missing: list all again before the next use. */
  #isStale = true;
  #listing: Promise<void> | undefined;

  constructor(api: KubeApi) {
    this.#api = api;
  }

  /** There may be blocks that the ledger does not know, or it may know some that are gone. */
  distrust(): void {
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
    const since = this.lines.epoch;
    const { items } = await this.#api.listAll(addressBlocks, { labelSelector: `${POOL_LABEL}=${pool}`, signal });
    this.lines.replace(items.map(ledgerBlock), { since, pool });
    return items;
  }

  async #listAll({ signal }: AbortOptions): Promise<void> {
    const since = this.lines.epoch;
    this.#isStale = false;
    try {
      const { items } = await this.#api.listAll(addressBlocks, { signal });
      this.lines.replace(items.map(ledgerBlock), { since });
    } catch (error) {
      this.#isStale = true;
      throw error;
    }
  }
}

/** A prefix that somebody wrote by hand, wrongly, overlaps nothing. */
function ledgerBlock({ metadata, ipv4, ipv6 }: AddressBlock): LedgerBlock {
  const cidrs = [ipv4, ipv6].flatMap((text) => (text === undefined ? [] : (Cidr.tryParse(text) ?? [])));
  return { name: metadata.name, pool: metadata.labels?.[POOL_LABEL] ?? "", cidrs };
}
