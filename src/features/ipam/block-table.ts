import type { Clock } from "#base/clock";
import type { IpAddress } from "#base/ip";
import type { OwnedBlock } from "./block-source.ts";
import { Claims } from "./claims.ts";
import { addressesAt, type Entry, isUsable, newEntry, noteClaim, placeIn } from "./entry.ts";
import type { Assignment, Attachment, Restored, Stray } from "./holders.ts";
import { assignmentOf, type Holding, snapshotOf, type TableSnapshot } from "./snapshot.ts";

/** A live list in flight: what became known or was released after its start is not judged by it. */
export interface Listing {
  readonly startedAt: number;
}

/**
 * Which blocks this node has and which attachment holds which address. Pure memory: no waiting, no I/O, every method
 * leaves the invariants of `NodeIpam` true.
 *
 * Addresses are claimed, whatever block they are of (`Claims`), so that a block that vanishes and comes back under another
 * UID, or that overlaps another, gives out nothing that somebody has.
 */
export class BlockTable {
  readonly #clock: Clock;
  readonly #entries = new Map<string, Entry>();
  readonly #holdings = new Map<string, Holding>();
  readonly #unknown = new Map<string, Restored>();
  /** Links that are no attachment of ours, by ifindex. */
  #strays: ReadonlyMap<number, Stray> = new Map();
  readonly #claims = new Claims();
  readonly #listings = new Set<Listing>();
  /** UID to epoch, for releases that end while a list is in flight; emptied when none is. */
  readonly #released = new Map<string, number>();
  #epoch = 0;

  constructor(clock: Clock) {
    this.#clock = clock;
  }

  /** Attachments of the kernel whose block is not known (yet). */
  get unknown(): readonly Restored[] {
    return [...this.#unknown.values()];
  }

  /** How many attachments have addresses that are in no block of this node. */
  get stranded(): number {
    return this.#unknown.size + [...this.#holdings.values()].filter(({ entry }) => entry.missing).length;
  }

  /** The pools of this node's blocks, and of attachments without one. */
  get pools(): ReadonlySet<string> {
    const ofEntries = Array.from(this.#entries.values(), ({ block }) => block.pool);
    return new Set([...ofEntries, ...this.unknown.map(({ pool }) => pool)]);
  }

  get blocks(): readonly OwnedBlock[] {
    return [...this.#entries.values()].filter((entry) => !entry.missing).map((entry) => entry.block);
  }

  /** Takes over what the kernel has now. True when that emptied a block. */
  remember(attached: readonly Restored[], strays: readonly Stray[]): boolean {
    const seen = new Map<string, Restored>();
    const others = new Map(strays.map((stray) => [stray.ifindex, stray] as const));
    for (const one of attached) {
      const other = this.#strayPart(one, seen.get(keyOf(one)));
      if (other !== undefined) others.set(one.ifindex, other);
      if (!seen.has(keyOf(one))) seen.set(keyOf(one), one);
    }
    let emptied = false;
    for (const [key, one] of seen) {
      if (this.#holdings.has(key)) continue;
      this.#unknown.set(key, one);
      emptied = this.#claim(key, one.addresses) || emptied;
    }
    // Its link is gone, so its addresses are free.
    for (const key of [...this.#unknown.keys()]) if (!seen.has(key)) emptied = this.#forget(key) || emptied;
    emptied = this.#rememberStrays(others) || emptied;
    this.#settle();
    return emptied;
  }

  /** What an attachment has; also where its block is not known. */
  assigned(attachment: Attachment): Assignment | undefined {
    const holding = this.#holdings.get(keyOf(attachment));
    if (holding !== undefined) return assignmentOf(holding.entry.block, holding.offset);
    const restored = this.#unknown.get(keyOf(attachment));
    if (restored === undefined || restored.addresses.length === 0) return undefined;
    const ofFamily = (family: 4 | 6): IpAddress | undefined =>
      restored.addresses.find((address) => address.family === family);
    return { pool: restored.pool, block: "", ipv4: ofFamily(4), ipv6: ofFamily(6) };
  }

  /** Takes the next address of the fullest usable block of the pool; `undefined` when none has room. */
  assign(pool: string, attachment: Attachment): Assignment | undefined {
    if (this.doubt(pool) !== undefined) return undefined;
    const entry = this.#withRoom(pool).sort((a, b) => a.slots.free - b.slots.free || a.block.index - b.block.index)[0];
    const offset = entry?.slots.take();
    if (entry === undefined || offset === undefined) return undefined;
    this.#hold(entry, offset, attachment);
    return assignmentOf(entry.block, offset);
  }

  /** Whether {@link BlockTable.assign} would find an address. */
  hasRoom(pool: string): boolean {
    return this.doubt(pool) === undefined && this.#withRoom(pool).length > 0;
  }

  /** Whether every usable block of these names is full already, with addresses that were in use before. */
  isFull(names: ReadonlySet<string>): boolean {
    return [...this.#entries.values()].some(
      (entry) => names.has(entry.block.name) && isUsable(entry) && entry.slots.free === 0,
    );
  }

  /**
   * A link whose addresses cannot be read, and may be of any block of this pool: nothing of the pool is handed out or given
   * back while it is there.
   */
  doubt(pool: string): Restored | Stray | undefined {
    for (const one of this.#unknown.values()) if (one.addresses.length === 0 && one.pool === pool) return one;
    for (const one of this.#strays.values()) if (one.addresses.length === 0) return one;
    return undefined;
  }

  /** Frees what the attachment holds. True when that emptied a block. */
  free(attachment: Attachment): boolean {
    return this.#forget(keyOf(attachment));
  }

  beginListing(): Listing {
    const listing = { startedAt: this.#epoch };
    this.#listings.add(listing);
    return listing;
  }

  /** Takes over what a live list found (of one pool, or of all). True when the set of blocks changed. */
  endListing(listing: Listing, found: readonly OwnedBlock[], pool: string | undefined): boolean {
    const before = this.blocks.map((block) => block.uid).join();
    const listed = new Set(found.map((block) => block.uid));
    for (const entry of this.#entries.values()) {
      const judged = (pool === undefined || entry.block.pool === pool) && entry.addedAt <= listing.startedAt;
      if (judged && !listed.has(entry.block.uid)) this.#lose(entry);
    }
    for (const block of found) {
      if ((this.#released.get(block.uid) ?? -1) < listing.startedAt) this.#learn(block, listing);
    }
    this.#settle();
    return before !== this.blocks.map((block) => block.uid).join();
  }

  /** Ends a listing, however it went. */
  abandonListing(listing: Listing): void {
    this.#listings.delete(listing);
    if (this.#listings.size === 0) this.#released.clear();
  }

  /** Whether a block as it is said to be differs from what is known of it, other than by what this node does itself. */
  differs({ uid, deleting }: Pick<OwnedBlock, "uid" | "deleting">): boolean {
    const entry = this.#entries.get(uid);
    if (entry === undefined) return !deleting;
    if (entry.releasing) return false;
    return entry.missing || entry.doubtfulSince !== undefined || entry.block.deleting !== deleting;
  }

  knows(uid: string): boolean {
    return this.#entries.has(uid);
  }

  /** A block is said to be gone: nothing is allocated from it until a later list shows it. True when that is news. */
  suspect(uid: string): boolean {
    const entry = this.#entries.get(uid);
    if (entry === undefined || entry.releasing || entry.missing) return false;
    this.#epoch += 1;
    entry.doubtfulSince = this.#epoch;
    return true;
  }

  /**
   * The blocks that have been empty for `delayMs`, but for those of `wantedPools`; they are not allocated from until
   * {@link BlockTable.endRelease}.
   */
  beginRelease(delayMs: number, wantedPools: { has(pool: string): boolean } = new Set()): readonly OwnedBlock[] {
    const due = [...this.#entries.values()].filter(
      (entry) =>
        !wantedPools.has(entry.block.pool) &&
        !entry.block.reserved &&
        !entry.releasing &&
        !entry.missing &&
        entry.emptySince !== undefined &&
        this.#clock.monotonic() - entry.emptySince >= delayMs &&
        this.doubt(entry.block.pool) === undefined,
    );
    for (const entry of due) entry.releasing = true;
    return due.map((entry) => entry.block);
  }

  /**
   * `released`: the block is gone. Otherwise nobody knows: the answer may have been lost after the deed, and the block may be
   * another node's by now. It is usable again once a list that began later shows it whole.
   */
  endRelease(block: OwnedBlock, released: boolean): void {
    const entry = this.#entries.get(block.uid);
    this.#epoch += 1;
    if (released) {
      this.#entries.delete(block.uid);
      this.#released.set(block.uid, this.#epoch);
    } else if (entry !== undefined) {
      entry.releasing = false;
      entry.doubtfulSince = this.#epoch;
    }
  }

  /** Everything, as plain data. */
  snapshot(): TableSnapshot {
    return snapshotOf({
      entries: this.#entries.values(),
      holdings: this.#holdings.values(),
      unknown: this.unknown,
      strays: this.#strays.values(),
      stranded: this.stranded,
    });
  }

  #withRoom(pool: string): Entry[] {
    return [...this.#entries.values()].filter((one) => one.block.pool === pool && isUsable(one) && one.slots.free > 0);
  }

  /** What of a link of ours does not belong to its attachment, as when two links have one alias. */
  #strayPart({ ifindex, hostName, addresses, ...one }: Restored, first: Restored | undefined): Stray | undefined {
    if (first !== undefined) return { ifindex, hostName, addresses };
    if (!this.#holdings.has(keyOf(one))) return undefined;
    const own = new Set(this.#claims.of(keyOf(one)).map(String));
    const more = addresses.filter((address) => !own.has(String(address)));
    return more.length === 0 ? undefined : { ifindex, hostName, addresses: more };
  }

  #rememberStrays(strays: ReadonlyMap<number, Stray>): boolean {
    let emptied = false;
    for (const ifindex of this.#strays.keys()) {
      if (!strays.has(ifindex)) emptied = this.#claim(strayKey(ifindex), []) || emptied;
    }
    for (const { ifindex, addresses } of strays.values()) {
      emptied = this.#claim(strayKey(ifindex), addresses) || emptied;
    }
    this.#strays = strays;
    return emptied;
  }

  #learn(block: OwnedBlock, listing: Listing): void {
    const known = this.#entries.get(block.uid);
    if (known === undefined) {
      this.#epoch += 1;
      const at = { epoch: this.#epoch, nowMs: this.#clock.monotonic() };
      this.#entries.set(block.uid, newEntry(block, this.#claims, at));
      return;
    }
    // Its addresses stay those that were handed out of, whatever somebody wrote into it.
    known.block = { ...block, ipv4: known.block.ipv4, ipv6: known.block.ipv6 };
    known.missing = false;
    if (known.doubtfulSince !== undefined && known.doubtfulSince <= listing.startedAt) known.doubtfulSince = undefined;
  }

  #lose(entry: Entry): void {
    if (entry.owners.size === 0) this.#entries.delete(entry.block.uid);
    else entry.missing = true;
  }

  #hold(entry: Entry, offset: number, attachment: Attachment): void {
    const key = keyOf(attachment);
    const { containerId, ifname } = attachment;
    entry.owners.set(offset, key);
    this.#holdings.set(key, { attachment: { containerId, ifname }, entry, offset });
    this.#claim(key, addressesAt(entry.block, offset));
  }

  /** True when a block is empty now. */
  #forget(key: string): boolean {
    this.#unknown.delete(key);
    const holding = this.#holdings.get(key);
    this.#holdings.delete(key);
    if (holding !== undefined) this.#disown(holding.entry, holding.offset, key);
    return this.#claim(key, []);
  }

  /** The slot is cleared for its owner only. */
  #disown(entry: Entry, offset: number, key: string): void {
    if (entry.owners.get(offset) === key) entry.owners.delete(offset);
    if (entry.missing && entry.owners.size === 0) this.#entries.delete(entry.block.uid);
  }

  /** Makes these addresses all that the holder has. True when that emptied a block. */
  #claim(holder: string, addresses: readonly IpAddress[]): boolean {
    const nowMs = this.#clock.monotonic();
    let emptied = false;
    for (const change of this.#claims.set(holder, addresses)) {
      for (const entry of this.#entries.values()) {
        emptied = noteClaim(entry, change, this.#claims, nowMs) || emptied;
      }
    }
    return emptied;
  }

  /**
   * Gives attachments their place as soon as their block is known: those of the kernel, and those whose block vanished and
   * has come back under another UID. The most recent one is placed last, so that its address is continued after.
   */
  #settle(): void {
    for (const [key, { attachment, entry, offset }] of this.#holdings) {
      if (!entry.missing || !this.#placeAt(attachment, this.#claims.of(key))) continue;
      this.#disown(entry, offset, key);
    }
    const waiting = [...this.#unknown.values()].sort((a, b) => a.ifindex - b.ifindex);
    for (const restored of waiting) {
      if (this.#placeAt(restored, restored.addresses)) this.#unknown.delete(keyOf(restored));
    }
  }

  /** True when some block of this node has these addresses, and nobody else owns them. */
  #placeAt(attachment: Attachment, addresses: readonly IpAddress[]): boolean {
    for (const entry of this.#entries.values()) {
      const offset = entry.missing ? undefined : placeIn(entry, addresses);
      if (offset === undefined) continue;
      this.#hold(entry, offset, attachment);
      entry.slots.continueAfter(offset);
      return true;
    }
    return false;
  }
}

/** Container ids have no slash (CNI specification), so the two parts stay apart. */
function keyOf({ containerId, ifname }: Attachment): string {
  return `${containerId}/${ifname}`;
}

/** No key of an attachment begins with a slash. */
function strayKey(ifindex: number): string {
  return `/link/${ifindex}`;
}
