import { type AbortOptions, Backoff, Deferred, Dirty, unlessAborted } from "#base/async";
import type { Clock } from "#base/clock";
import { ExpectedError } from "#base/errors";
import type { HealthPart } from "#base/health";
import type { Cidr } from "#base/ip";
import type { Logger } from "#base/log";
import { reconcile } from "#base/reconcile";
import { AddressTable } from "./address-table.ts";
import type { Assignment, Attachment, LostAttachment, RestoredAttachment, UnownedLink } from "./attachments.ts";
import type { BlockSource, OwnedBlock } from "./block-source.ts";
import { BlockSupply } from "./block-supply.ts";
import { IpamError } from "./errors.ts";

const NODE_GONE =
  "this Node is not in the cluster (any more): coild allocates nothing, because other nodes will get its blocks";
/**
 * No address is allocated if the last comparison is older than this, in milliseconds. A node whose network is broken loses its blocks;
 * after the repair an ADD may come before the watch's event. The controller's grace for nodes that are away is no less.
 */
export const FRESH_MS = 30_000;
/** Default of {@link NodeIpamOptions.freedSoonMs}. */
const FREED_SOON_MS = 100;
/** After these failures this node may own a block that it does not know. */
const UNDECIDED: ReadonlySet<string> = new Set(["api-unavailable", "block-timeout"]);

export interface NodeIpamOptions {
  /** The interval at which all blocks are compared with the API server, in milliseconds. */
  readonly collectIntervalMs: number;
  /** The time for which an empty block is kept for reuse, in milliseconds. 0: the block is released at once. */
  readonly releaseDelayMs: number;
  /** The time for which an ADD in a full pool waits for an address that a DEL frees, in milliseconds. Default 100. */
  readonly freedSoonMs?: number;
}

export interface NodeIpamDeps {
  readonly source: BlockSource;
  readonly log: Logger;
  readonly clock: Clock;
  /** Called after the set of this node's blocks has changed. */
  readonly onBlocksChanged: () => void;
  /** False while another machine may have pods in blocks that are empty here: none is released. Default: always true. Call {@link NodeIpam.noteMayRelease} when it changes. */
  readonly mayRelease?: () => boolean;
  /** Called when an ADD has ended its wait for an address, with or without one; seconds. */
  readonly onBlockWait?: (seconds: number) => void;
}

/**
 * The addresses of one node (docs/spec/pod-network.md#4.5 to #4.7). Memory only: {@link NodeIpam.remember} passes the state of the kernel
 * to it, at the start and from time to time.
 *
 * Invariants: an attachment has one assignment; an address has one owner, even if blocks are deleted or replaced; a late free by an old
 * owner does not affect a new owner; a failed API call changes nothing.
 */
export class NodeIpam {
  readonly #log: Logger;
  readonly #clock: Clock;
  readonly #options: NodeIpamOptions;
  readonly #table: AddressTable;
  readonly #supply: BlockSupply;
  readonly #onBlockWait: ((seconds: number) => void) | undefined;
  readonly #mayRelease: () => boolean;
  /** One request in flight for each pool; every waiting ADD shares it. */
  readonly #requests = new Map<string, Promise<void>>();
  /** The number of ADDs that wait for an address, by pool; empty blocks of the pool are kept for these ADDs. */
  readonly #waiting = new Map<string, number>();
  readonly #dirty: Dirty;
  /** Settles when the next address is freed. */
  #freed = new Deferred();
  #lastCollectMs = Number.NEGATIVE_INFINITY;
  /** The comparison that ADDs wait for. */
  #comparing: Promise<void> | undefined;
  /** True if an event came after the last comparison began. */
  #compareDue = true;
  /** True from a comparison until the removal of answered requests begins. */
  #answeredDue = false;
  #nodeGone = false;

  constructor(deps: NodeIpamDeps, options: NodeIpamOptions) {
    this.#log = deps.log;
    this.#clock = deps.clock;
    this.#options = options;
    this.#dirty = new Dirty(this.#clock);
    this.#table = new AddressTable(this.#clock);
    this.#onBlockWait = deps.onBlockWait;
    this.#mayRelease = deps.mayRelease ?? (() => true);
    const { source, log, onBlocksChanged } = deps;
    this.#supply = new BlockSupply({ source, table: this.#table, log, clock: this.#clock, onBlocksChanged });
  }

  /**
   * Applies the state of the kernel. Call before anything is served, then {@link NodeIpam.learn} before anything is allocated; and again
   * from time to time, because other programs change links. An address is not allocated while its link exists; if the addresses of a link
   * cannot be read, no address of the pool is allocated and no block released. `linked`: attachments whose link exists but lacks some or
   * all of its addresses. They keep the addresses that they are known to have.
   */
  remember(
    attached: readonly RestoredAttachment[],
    unowned: readonly UnownedLink[] = [],
    linked: readonly Attachment[] = [],
  ): void {
    const before = this.degradedReason;
    const { emptied, vanished } = this.#table.remember(attached, unowned, linked);
    for (const { attachment, assignment } of vanished) {
      const { pool, ipv4, ipv6 } = assignment;
      const addresses = [ipv4, ipv6].filter((address) => address !== undefined).map(String);
      const fields = { containerID: attachment.containerId, ifname: attachment.ifname, pool, addresses };
      this.#log.warn("the link of an attachment was deleted without a DEL; its addresses are free again", fields);
    }
    // The addresses of a vanished attachment are free: ADDs that wait for an address can get them now.
    if (vanished.length > 0) this.#wake();
    if (emptied || before !== this.degradedReason) this.#dirty.mark("links remembered");
  }

  /**
   * Call this for a watch event of a block of this node. When the block differs from its known state, all blocks are compared at once. A
   * new block is ignored if this node waits for a block of that pool.
   */
  noteBlock(block: Pick<OwnedBlock, "uid" | "pool" | "deleting">): void {
    const expected = this.#requests.has(block.pool) && !this.#table.blocks.knows(block.uid);
    if (!expected && this.#table.blocks.differs(block)) this.#compareSoon();
  }

  /** Call this when a watch reports the deletion of a block: no other address of it is allocated, and all blocks are compared at once. */
  noteBlockGone(uid: string): void {
    if (this.#table.blocks.suspect(uid)) this.#compareSoon();
  }

  /** Sets whether the Node object exists. While it does not exist nothing is allocated, because other nodes will get its blocks. */
  noteNode(exists: boolean): void {
    if (this.#nodeGone !== exists) return;
    this.#nodeGone = !exists;
    this.#compareSoon();
  }

  /** Call this when blocks may be released again: those that are empty are released now. */
  noteMayRelease(): void {
    this.#dirty.mark("may release");
  }

  /**
   * Attachments whose block was deleted or belongs to another node. Other pods may have their addresses, so they must be cut off. Empty
   * until all blocks were compared.
   */
  get lost(): readonly LostAttachment[] {
    return this.#table.lost;
  }

  /** True for an attachment of {@link NodeIpam.lost}; `undefined` while that is not known, as before all blocks were listed. */
  isLost(attachment: Attachment): boolean | undefined {
    return this.#table.isLost(attachment);
  }

  /** True if this Node was deleted and has not been created again. */
  get nodeGone(): boolean {
    return this.#nodeGone;
  }

  /** Call this when the API server answers again after an outage: all blocks are compared, and waiting ADDs continue. */
  noteApiReturn(): void {
    this.#compareSoon();
  }

  /** The reason why addresses cannot be allocated or released, as a sentence for operators; `undefined` if they can. */
  get degradedReason(): string | undefined {
    const { stranded } = this.#table;
    const unread = [...this.#table.pools].flatMap((pool) => this.#unreadableIn(pool) ?? []);
    const all = [
      this.#nodeGone ? NODE_GONE : [],
      stranded === 0 ? [] : `the addresses of ${stranded} attachments are in no block of this node`,
      unread,
    ].flat();
    return all.length === 0 ? undefined : all.join("; ");
  }

  /** Logs the attachments whose addresses are in no block of this node. */
  reportUnknown(): void {
    for (const { containerId, pool, addresses } of this.#table.unknown) {
      const fields = { containerID: containerId, pool, addresses: addresses.map(String) };
      this.#log.warn("the addresses of an attachment are in no block of this node", fields);
    }
  }

  /**
   * The addresses of an attachment: the addresses that it has, or new addresses of the pool. If no address is free it waits for a block;
   * before that it waits for a comparison if the last comparison is older than {@link FRESH_MS}. Throws {@link IpamError}; rejects with the
   * signal's reason when it aborts.
   */
  async allocate(pool: string, attachment: Attachment, options: AbortOptions): Promise<Assignment> {
    const find = (): Assignment | undefined => {
      const own = this.#table.assigned(attachment);
      if (own !== undefined) {
        this.#refuseLost(attachment, own);
        this.#table.beginSetUp(attachment);
        return own;
      }
      this.#refuseUnsafePool(pool);
      return this.#table.assign(pool, attachment);
    };
    if (this.#table.assigned(attachment) === undefined) await this.#compareIfOld(options);
    let assignment = find();
    if (assignment !== undefined) return assignment;
    this.#waiting.set(pool, (this.#waiting.get(pool) ?? 0) + 1);
    const startedMs = this.#clock.monotonic();
    try {
      for (; assignment === undefined; assignment = find()) await this.#waitForAddress(pool, options);
      return assignment;
    } finally {
      this.#onBlockWait?.((this.#clock.monotonic() - startedMs) / 1000);
      const others = (this.#waiting.get(pool) ?? 1) - 1;
      if (others > 0) this.#waiting.set(pool, others);
      else this.#waiting.delete(pool);
      // A block that was kept for this attachment and stayed empty is released.
      if (others === 0) this.#dirty.mark("address not needed");
    }
  }

  /** The addresses of an attachment. */
  assigned(attachment: Attachment): Assignment | undefined {
    return this.#table.assigned(attachment);
  }

  /** The ADD of an attachment has ended: from now on its addresses are freed when it has no link. */
  settle(attachment: Attachment): void {
    this.#table.settle(attachment);
  }

  /** Frees an attachment's addresses, if it has any. If its block becomes empty, the block is released in the background. */
  free(attachment: Attachment): void {
    if (this.#table.free(attachment)) this.#dirty.mark("address freed");
    this.#wake();
  }

  /** Every block of this node that exists in the API, for route export. */
  get blocks(): readonly OwnedBlock[] {
    return this.#table.blocks.present;
  }

  /** The prefixes of {@link NodeIpam.blocks}. */
  get prefixes(): readonly Cidr[] {
    return this.blocks.flatMap(({ ipv4, ipv6 }) => [ipv4, ipv6].filter((cidr) => cidr !== undefined));
  }

  /** A consistent snapshot for audits and metrics. */
  snapshot(): ReturnType<AddressTable["snapshot"]> {
    return this.#table.snapshot();
  }

  /** Releases empty blocks and compares with the API server, until the signal aborts. */
  async run(options: { readonly signal: AbortSignal; readonly health: HealthPart }): Promise<void> {
    await reconcile({
      dirty: this.#dirty,
      sync: ({ signal }) => this.#sync(signal),
      health: this.#reportDegraded(options.health),
      signal: options.signal,
      resyncMs: Math.min(this.#options.collectIntervalMs, Math.max(1000, this.#options.releaseDelayMs)),
      backoff: new Backoff({ initialMs: 500, maxMs: 30_000 }),
    });
  }

  /**
   * Compares all blocks with the API server. At the start this comes before anything is allocated, and is all that ADDs wait for: what
   * is left to write is for {@link NodeIpam.run}, since writes can fail where reads do not.
   */
  async learn(options: AbortOptions): Promise<void> {
    const startedMs = this.#clock.monotonic();
    // An event that arrives from now on needs another comparison.
    this.#compareDue = false;
    try {
      await this.#supply.compare(options);
    } catch (error) {
      this.#compareDue = true;
      throw error;
    }
    this.#lastCollectMs = startedMs;
    this.#answeredDue = true;
  }

  /** One pass of {@link NodeIpam.run} that compares: then answered requests are removed, and empty blocks released. */
  async collect(options: AbortOptions): Promise<number> {
    await this.learn(options);
    return this.#tidy(options);
  }

  /** Even a successful sync may have found a reason to report `degraded`. */
  #reportDegraded(health: HealthPart): HealthPart {
    return {
      ok: (reason, progress) => {
        const { degradedReason } = this;
        if (degradedReason === undefined) health.ok(reason, progress);
        else health.degraded(degradedReason);
      },
      degraded: (error) => health.degraded(error),
    };
  }

  #compareSoon(): void {
    this.#compareDue = true;
    this.#dirty.mark("comparison due");
  }

  /** Refuses a lost attachment: a new link of this attachment would not be cut off. */
  #refuseLost(attachment: Attachment, { ipv4, ipv6 }: Assignment): void {
    if (this.#table.isLost(attachment) !== true) return;
    const addresses = [ipv4, ipv6].filter((address) => address !== undefined).join(", ");
    const message = `container ${attachment.containerId}: its addresses ${addresses} are in no block of this node any more, and another pod may have them; delete the pod`;
    throw new IpamError("lost", message);
  }

  #refuseUnsafePool(pool: string): void {
    if (this.#nodeGone) throw new IpamError("node-not-found", NODE_GONE);
    const unreadable = this.#unreadableIn(pool);
    if (unreadable !== undefined) throw new IpamError("unreadable", unreadable);
  }

  #unreadableIn(pool: string): string | undefined {
    const link = this.#table.unreadable(pool);
    if (link === undefined) return undefined;
    const who = "containerId" in link ? `container ${link.containerId}` : "a container that coild does not know";
    return `pool ${pool}: coild allocates nothing, because the addresses of link ${link.hostName ?? link.ifindex} of ${who} cannot be read; delete that pod, or the link`;
  }

  async #sync(signal: AbortSignal): Promise<number> {
    const old = this.#clock.monotonic() - this.#lastCollectMs >= this.#options.collectIntervalMs;
    return old || this.#compareDue ? this.collect({ signal }) : this.#tidy({ signal });
  }

  async #tidy(options: AbortOptions): Promise<number> {
    // Once for each comparison: it lists the requests of all nodes.
    const removing = this.#answeredDue ? this.#supply.removeAnswered(this.#requests, options) : undefined;
    this.#answeredDue = false;
    // Neither holds the other up.
    const [removed, released] = await Promise.allSettled([removing, this.#releaseEmpty(options)]);
    const failures = [released, removed].flatMap((one) => (one.status === "rejected" ? [one.reason] : []));
    if (released.status === "fulfilled" && failures.length === 0) return released.value;
    throw failures.find((error) => !(error instanceof ExpectedError)) ?? failures[0];
  }

  async #releaseEmpty(options: AbortOptions): Promise<number> {
    if (!this.#mayRelease()) return 0;
    try {
      // A comparison that is due may find pods to cut off: the returns go on after it.
      const isDisturbed = (): boolean => this.#compareDue || !this.#mayRelease();
      return await this.#supply.releaseEmpty(this.#options.releaseDelayMs, this.#waiting, { ...options, isDisturbed });
    } catch (error) {
      // Only a list can decide whether the blocks still exist.
      this.#compareDue = true;
      throw error;
    }
  }

  /** Compares with the API server, unless the last comparison is more recent than {@link FRESH_MS}, suspended time included. */
  async #compareIfOld(options: AbortOptions): Promise<void> {
    // A comparison that began before the machine was suspended is old when it ends.
    while (this.#supply.isOlderThan(FRESH_MS)) {
      this.#comparing ??= this.#supply.compare({}).finally(() => {
        this.#comparing = undefined;
      });
      await unlessAborted(this.#comparing, options);
    }
  }

  /** Requests a block; if the pool has no free block, waits briefly for an address that a running DEL frees. */
  async #waitForAddress(pool: string, options: AbortOptions): Promise<void> {
    const freed = this.#freed.promise;
    try {
      await unlessAborted(this.#moreBlocks(pool), options);
    } catch (error) {
      const mayBeFreed = error instanceof IpamError && ["exhausted", "pool-deleting"].includes(error.code);
      if (!mayBeFreed) throw error;
      const waitMs = this.#options.freedSoonMs ?? FREED_SOON_MS;
      if (waitMs === 0) throw error;
      // A rolling update of a full pool deletes one pod and adds the next at the same time.
      const timeout = Promise.withResolvers<false>();
      const cancel = this.#clock.after(waitMs, () => timeout.resolve(false));
      const isFreed = await unlessAborted(Promise.race([freed.then(() => true), timeout.promise]), options).finally(
        cancel,
      );
      if (!isFreed || !this.#table.hasFreeAddress(pool)) throw error;
    }
  }

  /** Wakes the ADDs that wait for an address, after one was freed. */
  #wake(): void {
    this.#freed.resolve();
    this.#freed = new Deferred();
  }

  #moreBlocks(pool: string): Promise<void> {
    const running = this.#requests.get(pool);
    if (running !== undefined) return running;
    const request = this.#supply.acquire(pool).finally(() => {
      this.#requests.delete(pool);
      // A block that no ADD waits for any more is released.
      if (!this.#waiting.has(pool)) this.#dirty.mark("block not needed");
    });
    this.#requests.set(pool, request);
    // If this fails after every waiter has stopped waiting, nobody needs the failure.
    request.catch((error: unknown) => {
      // The block may have been allotted although the request failed, because the answer was lost: then only a full list shows the block.
      if (!(error instanceof IpamError) || !UNDECIDED.has(error.code)) return;
      this.#compareSoon();
    });
    return request;
  }
}
