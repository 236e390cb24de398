import { type AbortOptions, Backoff, Dirty } from "#base/async";
import { type Clock, systemClock } from "#base/clock";
import type { HealthPart } from "#base/health";
import type { Cidr, IpAddress } from "#base/ip";
import type { Logger } from "#base/log";
import { reconcile } from "#base/reconcile";
import type { BlockSource, OwnedBlock } from "./block-source.ts";
import { BlockTable } from "./block-table.ts";
import { IpamError } from "./errors.ts";

/** Failures after which a block may be this node's that it does not know. */
const UNDECIDED: ReadonlySet<string> = new Set(["api-unavailable", "block-timeout"]);

/** One interface of one container: what owns an address. */
export interface Attachment {
  readonly containerId: string;
  readonly ifname: string;
}

/** The addresses of an attachment: the same offset of a block in each of its families. */
export interface Assignment {
  readonly pool: string;
  readonly block: string;
  readonly ipv4: IpAddress | undefined;
  readonly ipv6: IpAddress | undefined;
}

/** An attachment found in the kernel at start-up. */
export interface Restored extends Attachment {
  readonly pool: string;
  readonly addresses: readonly IpAddress[];
  /** Of the host's link: the highest is the most recent. */
  readonly ifindex: number;
}

export interface NodeIpamOptions {
  /** How often all blocks are compared with the API server, milliseconds. */
  readonly collectIntervalMs: number;
  /** How long an empty block is kept for reuse, milliseconds. 0: given back at once. */
  readonly releaseDelayMs: number;
}

export interface NodeIpamDeps {
  readonly source: BlockSource;
  readonly log: Logger;
  readonly clock?: Clock;
  /** Called after the set of this node's blocks has changed. */
  readonly onBlocksChanged: () => void;
}

/**
 * The addresses of one node (spec pod-network 4.5 to 4.7). Memory only: after a restart {@link NodeIpam.restore} tells it
 * what the kernel has.
 *
 * Invariants: one assignment an attachment; one owner an address; a late free of an old owner never touches a new one;
 * a failing API call changes nothing.
 */
export class NodeIpam {
  readonly #source: BlockSource;
  readonly #log: Logger;
  readonly #clock: Clock;
  readonly #options: NodeIpamOptions;
  readonly #onBlocksChanged: () => void;
  readonly #table: BlockTable;
  /** One request in flight for each pool; every waiting ADD shares it. */
  readonly #requests = new Map<string, Promise<void>>();
  /** How many ADDs wait for an address of each pool; its empty blocks, a new one above all, are kept for them. */
  readonly #waiting = new Map<string, number>();
  readonly #dirty: Dirty;
  #lastCollectMs = Number.NEGATIVE_INFINITY;

  constructor(deps: NodeIpamDeps, options: NodeIpamOptions) {
    this.#source = deps.source;
    this.#log = deps.log;
    this.#clock = deps.clock ?? systemClock;
    this.#onBlocksChanged = deps.onBlocksChanged;
    this.#options = options;
    this.#dirty = new Dirty(this.#clock);
    this.#table = new BlockTable(this.#clock);
  }

  /**
   * Tells which attachments the kernel has. Call once, before anything is served; then {@link NodeIpam.collect} before
   * anything is allocated. An address that lies in no block of this node is never handed out or freed.
   */
  remember(restored: readonly Restored[]): void {
    this.#table.remember(restored);
  }

  /** Logs the attachments whose addresses are in no block of this node. */
  reportUnknown(): void {
    for (const { containerId, pool, addresses } of this.#table.unknown) {
      const fields = { containerID: containerId, pool, addresses: addresses.map(String) };
      this.#log.warn("address is in no block of this node", fields);
    }
  }

  /**
   * The addresses of an attachment: those it has, or new ones of the pool. Waits for a block where none has room.
   * Throws {@link IpamError}; rejects with the signal's reason when it aborts.
   */
  async allocate(pool: string, attachment: Attachment, options: AbortOptions): Promise<Assignment> {
    const find = (): Assignment | undefined => this.#table.assigned(attachment) ?? this.#table.assign(pool, attachment);
    let assignment = find();
    if (assignment !== undefined) return assignment;
    this.#waiting.set(pool, (this.#waiting.get(pool) ?? 0) + 1);
    try {
      for (; assignment === undefined; assignment = find()) await abortable(this.#moreBlocks(pool), options.signal);
      return assignment;
    } finally {
      const others = (this.#waiting.get(pool) ?? 1) - 1;
      if (others > 0) this.#waiting.set(pool, others);
      else this.#waiting.delete(pool);
      // What was kept for this attachment and stayed empty goes back.
      if (others === 0) this.#dirty.mark();
    }
  }

  /** What an attachment has. */
  assigned(attachment: Attachment): Assignment | undefined {
    return this.#table.assigned(attachment);
  }

  /** Frees an attachment's addresses, if it has any. An emptied block is given back in the background. */
  free(attachment: Attachment): void {
    if (this.#table.free(attachment)) this.#dirty.mark();
  }

  /** Every block of this node that exists in the API, for route export. */
  get blocks(): readonly OwnedBlock[] {
    return this.#table.blocks;
  }

  /** The prefixes of {@link NodeIpam.blocks}. */
  get prefixes(): readonly Cidr[] {
    return this.blocks.flatMap(({ ipv4, ipv6 }) => [ipv4, ipv6].filter((cidr) => cidr !== undefined));
  }

  /** A consistent picture for audits and metrics. */
  snapshot(): ReturnType<BlockTable["snapshot"]> {
    return this.#table.snapshot();
  }

  /** Gives back empty blocks and compares with the API server, until the signal aborts. */
  async run(options: { readonly signal: AbortSignal; readonly health: HealthPart }): Promise<void> {
    await reconcile({
      dirty: this.#dirty,
      sync: ({ signal }) => this.#sync(signal),
      health: options.health,
      signal: options.signal,
      resyncMs: Math.min(this.#options.collectIntervalMs, Math.max(1000, this.#options.releaseDelayMs)),
      backoff: new Backoff({ initialMs: 500, maxMs: 30_000 }),
    });
  }

  /** One pass of what {@link NodeIpam.run} does: compare with the API server, then give back what is empty. */
  async collect(options: AbortOptions): Promise<number> {
    const startedMs = this.#clock.monotonic();
    await this.#list({ ...options });
    this.#lastCollectMs = startedMs;
    return this.#releaseEmpty(options);
  }

  async #sync(signal: AbortSignal): Promise<number> {
    const due = this.#clock.monotonic() - this.#lastCollectMs >= this.#options.collectIntervalMs;
    return due ? this.collect({ signal }) : this.#releaseEmpty({ signal });
  }

  async #list(options: AbortOptions & { readonly pool?: string }): Promise<void> {
    const listing = this.#table.beginListing();
    try {
      const found = await this.#source.list(options);
      if (this.#table.endListing(listing, found, options.pool)) this.#onBlocksChanged();
    } finally {
      this.#table.abandonListing(listing);
    }
  }

  /** One block that cannot be given back does not keep the others; the first failure is thrown when all were tried. */
  async #releaseEmpty(options: AbortOptions): Promise<number> {
    const failures: unknown[] = [];
    let released = 0;
    for (const block of this.#table.beginRelease(this.#options.releaseDelayMs, this.#waiting)) {
      let done = false;
      try {
        await this.#source.release(block, options);
        done = true;
        released += 1;
        this.#log.info("block released", { pool: block.pool, block: block.name });
      } catch (error) {
        failures.push(error);
      } finally {
        this.#table.endRelease(block, done);
        if (done) this.#onBlocksChanged();
      }
    }
    if (failures.length > 0) throw failures[0];
    return released;
  }

  #moreBlocks(pool: string): Promise<void> {
    const running = this.#requests.get(pool);
    if (running !== undefined) return running;
    const request = this.#acquire(pool).finally(() => this.#requests.delete(pool));
    this.#requests.set(pool, request);
    // Every waiter may have gone by the time this fails; the failure then concerns nobody.
    request.catch((error: unknown) => {
      // The block may have been allotted all the same, and its answer lost: then only a full list shows it.
      if (!(error instanceof IpamError) || !UNDECIDED.has(error.code)) return;
      this.#lastCollectMs = Number.NEGATIVE_INFINITY;
      this.#dirty.mark();
    });
    return request;
  }

  async #acquire(pool: string): Promise<void> {
    const known = new Set(this.#table.blocks.map((block) => block.name));
    await this.#source.request(pool, known, {});
    await this.#list({ pool });
    const gained = this.#table.blocks.filter((block) => block.pool === pool && !known.has(block.name));
    this.#log.info("block acquired", { pool, blocks: gained.map((block) => block.name) });
    await this.#source.settle(pool, {});
    if (!this.#table.hasRoom(pool)) {
      throw new IpamError("api-unavailable", `pool ${pool}: a block was allotted to this node but cannot be used yet`);
    }
  }
}

/** The promise, or the signal's reason if that comes first. */
async function abortable(work: Promise<void>, signal: AbortSignal | undefined): Promise<void> {
  if (signal === undefined) return work;
  signal.throwIfAborted();
  const { promise, reject } = Promise.withResolvers<never>();
  const onAbort = (): void => reject(signal.reason);
  signal.addEventListener("abort", onAbort, { once: true });
  try {
    await Promise.race([work, promise]);
  } finally {
    signal.removeEventListener("abort", onAbort);
  }
}
