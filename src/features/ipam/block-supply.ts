import type { AbortOptions } from "#base/async";
import type { Clock } from "#base/clock";
import type { Logger } from "#base/log";
import type { AddressTable, PoolSet } from "./address-table.ts";
import type { BlockSource } from "./block-source.ts";
import { IpamError, type IpamErrorCode } from "./errors.ts";

/** Failures with which a controller answers a request. */
const ANSWERS: ReadonlySet<IpamErrorCode> = new Set(["exhausted", "pool-deleting", "pool-not-found", "invalid-pool"]);

/** If the wall clock advanced more than the monotonic one by more than this, in milliseconds, the machine was suspended, or its time was set. */
const SUSPENDED_MS = 5000;

/** Collaborators of a {@link BlockSupply}. */
export interface BlockSupplyDeps {
  readonly source: BlockSource;
  readonly table: AddressTable;
  readonly log: Logger;
  readonly clock: Clock;
  /** Called after the set of this node's blocks has changed. */
  readonly onBlocksChanged: () => void;
}

/**
 * Compares this node's blocks in memory with the API server, requests blocks and releases them. `NodeIpam` decides when this happens. Every
 * method rejects with {@link IpamError}, or with the signal's reason.
 */
export class BlockSupply {
  readonly #deps: BlockSupplyDeps;
  /** The start of the last successful comparison: all earlier changes are known. */
  #compared = { monotonicMs: Number.NEGATIVE_INFINITY, wallMs: Number.NEGATIVE_INFINITY };

  constructor(deps: BlockSupplyDeps) {
    this.#deps = deps;
  }

  /**
   * True if changes that are older than this may be unknown, in milliseconds, or if there was no comparison yet. The monotonic clock stands
   * still while the machine is suspended, so the wall clock shows that; a jump of the wall clock costs one comparison.
   */
  isOlderThan(ms: number): boolean {
    const { clock } = this.#deps;
    const { monotonicMs, wallMs } = this.#compared;
    const passedMs = clock.monotonic() - monotonicMs;
    return passedMs >= ms || clock.now() - wallMs - passedMs > SUSPENDED_MS;
  }

  /** Updates this node's blocks by a live list. */
  async compare(options: AbortOptions): Promise<void> {
    const { source, table, clock, onBlocksChanged } = this.#deps;
    const started = { monotonicMs: clock.monotonic(), wallMs: clock.now() };
    const listing = table.blocks.beginListing();
    try {
      const found = await source.list(options);
      if (started.monotonicMs >= this.#compared.monotonicMs) this.#compared = started;
      if (table.endListing(listing, found)) onBlocksChanged();
    } finally {
      table.blocks.abandonListing(listing);
    }
  }

  /**
   * Gets a free address in a pool. A block that is being released, or whose release failed, is read again before another block is
   * requested.
   */
  async acquire(pool: string): Promise<void> {
    const { source, table, log } = this.#deps;
    await table.blocks.released(pool);
    if (table.blocks.hasSuspect(pool)) await this.compare({});
    if (table.hasFreeAddress(pool)) return;
    const known = new Set(table.blocks.present.map((block) => block.name));
    try {
      await source.request(pool, known, {});
    } catch (error) {
      // The answered request is not needed any more.
      if (error instanceof IpamError && ANSWERS.has(error.code)) await source.settle(pool, {});
      throw error;
    }
    await this.compare({});
    const gained = table.blocks.present.filter((block) => block.pool === pool && !known.has(block.name));
    log.info("block acquired", { pool, blocks: gained.map((block) => block.name) });
    await source.settle(pool, {});
    // If earlier attachments use all addresses of the new block, another block is requested.
    const full = table.blocks.isFull(new Set(gained.map((block) => block.name)));
    if (!table.hasFreeAddress(pool) && !full) {
      throw new IpamError(
        "api-unavailable",
        `pool ${pool}: a block was allotted to this node, but coild cannot use the block yet`,
      );
    }
  }

  /** Removes answered requests that an earlier run of this process, or an aborted ADD, left behind. */
  async removeAnswered(wantedPools: PoolSet, options: AbortOptions): Promise<void> {
    const removed = await this.#deps.source.removeAnswered(wantedPools, options);
    if (removed > 0) this.#deps.log.info("removed answered block requests that no ADD waits for", { removed });
  }

  /**
   * Releases the blocks that have been empty for `delayMs`, one after the other, except those of `wantedPools` at that moment; returns their number. If a
   * release fails, the others continue; the first failure is thrown at the end. When `isDisturbed` turns true, those that have not begun are left out.
   */
  async releaseEmpty(
    delayMs: number,
    wantedPools: PoolSet,
    { isDisturbed, ...options }: AbortOptions & { readonly isDisturbed: () => boolean },
  ): Promise<number> {
    const { source, table, log, onBlocksChanged } = this.#deps;
    const failures: unknown[] = [];
    let released = 0;
    for (const uid of table.dueForRelease(delayMs, wantedPools)) {
      const block = table.beginRelease(uid, delayMs, wantedPools);
      if (block === undefined) continue;
      let done = false;
      try {
        await source.release(block, options);
        done = true;
        released += 1;
        log.info("block released", { pool: block.pool, block: block.name });
      } catch (error) {
        failures.push(error);
      } finally {
        table.blocks.endRelease(block, done);
        if (done) onBlocksChanged();
      }
      if (isDisturbed()) break;
    }
    if (failures.length > 0) throw failures[0];
    return released;
  }
}
