import type { Clock } from "#base/clock";
import type { IpAddress } from "#base/ip";
import { AddressHolders } from "./address-holders.ts";
import type { Assignment, Attachment, LostAttachment, RestoredAttachment, UnownedLink } from "./attachments.ts";
import type { BlockListing, OwnedBlock } from "./block-source.ts";
import { addressesAt, type Entry, placeIn } from "./entry.ts";
import { type Listing, NodeBlocks } from "./node-blocks.ts";
import { assignmentOf, type Holding, snapshotOf, type TableSnapshot } from "./snapshot.ts";

/** An attachment and its addresses. */
export interface Assigned {
  readonly attachment: Attachment;
  readonly assignment: Assignment;
}

/** A set of pools that only tells whether a pool is in it. */
export interface PoolSet {
  has(pool: string): boolean;
}

/** An attachment counts as deleted if at least two surveys found no link of it during this time, in milliseconds. */
const VANISHED_GRACE_MS = 5000;

/**
 * The attachments, and the addresses of this node's blocks that they hold. Pure memory: no waiting, no I/O, every method leaves the
 * invariants of `NodeIpam` true.
 *
 * `AddressHolders` knows who holds each address, whatever its block. So no held address is allocated again, also from a block that was
 * deleted and created again under another UID, or that overlaps another block.
 */
export class AddressTable {
  /** The blocks themselves. */
  readonly blocks: NodeBlocks;
  readonly #holdings = new Map<string, Holding>();
  readonly #unknown = new Map<string, RestoredAttachment>();
  /** Attachments whose ADD has not ended: they may have no link yet. */
  readonly #settingUp = new Set<string>();
  /** Attachments without a link → monotonic milliseconds at which the link was first seen to be absent. */
  readonly #absentSince = new Map<string, number>();
  /** Links that are not attachments of this `coild`, by ifindex. */
  #unowned: ReadonlyMap<number, UnownedLink> = new Map();
  readonly #holders = new AddressHolders();
  readonly #clock: Clock;

  constructor(clock: Clock) {
    this.#clock = clock;
    this.blocks = new NodeBlocks(clock, this.#holders);
  }

  /** Attachments that the kernel has, but whose block is not known yet. */
  get unknown(): readonly RestoredAttachment[] {
    return [...this.#unknown.values()];
  }

  /** The number of attachments that have addresses that are in no block of this node. */
  get stranded(): number {
    return this.#unknown.size + [...this.#holdings.values()].filter(({ entry }) => entry.missing).length;
  }

  /**
   * Attachments whose block does not belong to this node any more: it was deleted, or belongs to another node. Other pods may have their
   * addresses. Empty until all blocks were listed. Attachments are left out if their addresses or their block cannot be read.
   */
  get lost(): readonly LostAttachment[] {
    const ofHoldings = [...this.#holdings.values()].flatMap(({ attachment, entry, offset }) =>
      entry.missing ? [{ ...attachment, block: entry.block.name, addresses: addressesAt(entry.block, offset) }] : [],
    );
    const ofUnknown = this.unknown
      .filter((one) => this.isLost(one) === true)
      .map(({ containerId, ifname, addresses }) => ({ containerId, ifname, block: undefined, addresses }));
    return [...ofHoldings, ...ofUnknown];
  }

  /** True for an attachment of {@link AddressTable.lost}; `undefined` if its blocks or addresses are not known. */
  isLost(attachment: Attachment): boolean | undefined {
    const holding = this.#holdings.get(keyOf(attachment));
    if (holding !== undefined) return holding.entry.missing;
    const addresses = this.#unknown.get(keyOf(attachment))?.addresses ?? [];
    if (addresses.some((address) => this.blocks.covers(address))) return false;
    return this.blocks.complete && addresses.length > 0 ? true : undefined;
  }

  /** The pools of this node's blocks, and of attachments without one. */
  get pools(): ReadonlySet<string> {
    const ofEntries = Array.from(this.blocks.entries, ({ block }) => block.pool);
    return new Set([...ofEntries, ...this.unknown.map(({ pool }) => pool)]);
  }

  /**
   * Applies a survey of the kernel. `linked`: attachments whose link exists but lacks some or all of its addresses. They are kept. Returns
   * in `vanished` the attachments that were freed, because their links no longer exist.
   */
  remember(
    attached: readonly RestoredAttachment[],
    unowned: readonly UnownedLink[],
    linked: readonly Attachment[],
  ): { readonly emptied: boolean; readonly vanished: readonly Assigned[] } {
    const seen = new Map<string, RestoredAttachment>();
    const others = new Map(unowned.map((link) => [link.ifindex, link] as const));
    for (const one of attached) {
      const other = this.#unownedPart(one, seen.get(keyOf(one)));
      if (other !== undefined) others.set(one.ifindex, other);
      if (!seen.has(keyOf(one))) seen.set(keyOf(one), one);
    }
    let emptied = false;
    for (const [key, one] of seen) {
      if (this.#holdings.has(key)) continue;
      this.#unknown.set(key, one);
      emptied = this.#setAddresses(key, one.addresses) || emptied;
    }
    // The link of the attachment is gone, so its addresses are free.
    const present = new Set([...seen.keys(), ...linked.map(keyOf)]);
    for (const key of [...this.#unknown.keys()]) if (!present.has(key)) emptied = this.#forget(key) || emptied;
    const vanished = this.#vanished(present);
    for (const { attachment } of vanished) emptied = this.#forget(keyOf(attachment)) || emptied;
    emptied = this.#rememberUnowned(others) || emptied;
    this.#placeAll();
    return { emptied, vanished };
  }

  /** The addresses of an attachment, also if its block is not known. */
  assigned(attachment: Attachment): Assignment | undefined {
    const holding = this.#holdings.get(keyOf(attachment));
    if (holding !== undefined) return assignmentOf(holding.entry.block, holding.offset);
    const restored = this.#unknown.get(keyOf(attachment));
    if (restored === undefined || restored.addresses.length === 0) return undefined;
    const ofFamily = (family: 4 | 6): IpAddress | undefined =>
      restored.addresses.find((address) => address.family === family);
    return { pool: restored.pool, block: "", ipv4: ofFamily(4), ipv6: ofFamily(6) };
  }

  /** Takes the next address of the fullest usable block of the pool; `undefined` if no address is free. */
  assign(pool: string, attachment: Attachment): Assignment | undefined {
    if (this.unreadable(pool) !== undefined) return undefined;
    const entry = this.blocks
      .withFreeSlots(pool)
      .sort((a, b) => a.slots.free - b.slots.free || a.block.index - b.block.index)[0];
    const offset = entry?.slots.take();
    if (entry === undefined || offset === undefined) return undefined;
    this.#settingUp.add(keyOf(attachment));
    this.#hold(entry, offset, attachment);
    return assignmentOf(entry.block, offset);
  }

  /** True if {@link AddressTable.assign} would find an address. */
  hasFreeAddress(pool: string): boolean {
    return this.unreadable(pool) === undefined && this.blocks.withFreeSlots(pool).length > 0;
  }

  /**
   * A link whose addresses cannot be read, so that they may be in any block of this pool. While the link exists, no address of the pool is
   * allocated and no block of the pool is released.
   */
  unreadable(pool: string): RestoredAttachment | UnownedLink | undefined {
    for (const one of this.#unknown.values()) if (one.addresses.length === 0 && one.pool === pool) return one;
    for (const one of this.#unowned.values()) if (one.addresses.length === 0) return one;
    return undefined;
  }

  /** Call this at the start of an ADD for an attachment that has addresses already: the ADD replaces its link. */
  beginSetUp(attachment: Attachment): void {
    this.#settingUp.add(keyOf(attachment));
  }

  /** The ADD of an attachment has ended: from now on it has a link, or its addresses are free. */
  settle(attachment: Attachment): void {
    this.#settingUp.delete(keyOf(attachment));
  }

  /** Frees the addresses of the attachment. Returns true if a block became empty. */
  free(attachment: Attachment): boolean {
    return this.#forget(keyOf(attachment));
  }

  /** Like {@link NodeBlocks.endListing}; attachments are then placed in blocks that have become known. */
  endListing(listing: Listing, found: BlockListing): boolean {
    const changed = this.blocks.endListing(listing, found);
    this.#placeAll();
    return changed;
  }

  /** Like {@link NodeBlocks.dueForRelease}, except for blocks of `wantedPools`, and of pools with unreadable links. */
  dueForRelease(delayMs: number, wantedPools: PoolSet): readonly string[] {
    return this.blocks.dueForRelease(delayMs, (pool) => this.#isKept(pool, wantedPools));
  }

  /** Like {@link NodeBlocks.beginRelease}, with the same exceptions. */
  beginRelease(uid: string, delayMs: number, wantedPools: PoolSet): OwnedBlock | undefined {
    return this.blocks.beginRelease(uid, delayMs, (pool) => this.#isKept(pool, wantedPools));
  }

  #isKept(pool: string, wantedPools: PoolSet): boolean {
    return wantedPools.has(pool) || this.unreadable(pool) !== undefined;
  }

  /** The whole table as plain data. */
  snapshot(): TableSnapshot {
    return snapshotOf({
      entries: this.blocks.entries,
      holdings: this.#holdings.values(),
      unknown: this.unknown,
      unowned: this.#unowned.values(),
      stranded: this.stranded,
    });
  }

  /** Attachments whose link has been absent for {@link VANISHED_GRACE_MS}: the link, or its namespace, was deleted without a DEL. */
  #vanished(present: ReadonlySet<string>): Assigned[] {
    const nowMs = this.#clock.monotonic();
    const due: Assigned[] = [];
    for (const [key, { attachment, entry, offset }] of this.#holdings) {
      if (present.has(key) || this.#settingUp.has(key)) {
        this.#absentSince.delete(key);
        continue;
      }
      const since = this.#absentSince.get(key) ?? nowMs;
      this.#absentSince.set(key, since);
      if (nowMs - since >= VANISHED_GRACE_MS) due.push({ attachment, assignment: assignmentOf(entry.block, offset) });
    }
    return due;
  }

  /** The addresses of an attachment's link that the attachment does not have, for example because two links have the same alias. */
  #unownedPart(
    { ifindex, hostName, addresses, ...one }: RestoredAttachment,
    first: RestoredAttachment | undefined,
  ): UnownedLink | undefined {
    if (first !== undefined) return { ifindex, hostName, addresses };
    if (!this.#holdings.has(keyOf(one))) return undefined;
    const own = new Set(this.#holders.of(keyOf(one)).map(String));
    const more = addresses.filter((address) => !own.has(String(address)));
    return more.length === 0 ? undefined : { ifindex, hostName, addresses: more };
  }

  #rememberUnowned(unowned: ReadonlyMap<number, UnownedLink>): boolean {
    let emptied = false;
    for (const ifindex of this.#unowned.keys()) {
      if (!unowned.has(ifindex)) emptied = this.#setAddresses(unownedKey(ifindex), []) || emptied;
    }
    for (const { ifindex, addresses } of unowned.values()) {
      emptied = this.#setAddresses(unownedKey(ifindex), addresses) || emptied;
    }
    this.#unowned = unowned;
    return emptied;
  }

  #hold(entry: Entry, offset: number, attachment: Attachment): void {
    const key = keyOf(attachment);
    const { containerId, ifname } = attachment;
    entry.owners.set(offset, key);
    this.#holdings.set(key, { attachment: { containerId, ifname }, entry, offset });
    this.#setAddresses(key, addressesAt(entry.block, offset));
  }

  /** True if this has emptied a block. */
  #forget(key: string): boolean {
    this.#settingUp.delete(key);
    this.#absentSince.delete(key);
    this.#unknown.delete(key);
    const holding = this.#holdings.get(key);
    this.#holdings.delete(key);
    if (holding !== undefined) this.blocks.removeOwner(holding.entry, holding.offset, key);
    return this.#setAddresses(key, []);
  }

  /** Sets the addresses of the holder. Returns true if a block became empty. */
  #setAddresses(holder: string, addresses: readonly IpAddress[]): boolean {
    let emptied = false;
    for (const change of this.#holders.set(holder, addresses)) emptied = this.blocks.noteHolder(change) || emptied;
    return emptied;
  }

  /**
   * Assigns attachments to their blocks as soon as the blocks are known: attachments that were read from the kernel, and attachments whose
   * block was deleted and created again under another UID. The most recent attachment is assigned last, so that the next allocation
   * continues after its address.
   */
  #placeAll(): void {
    for (const [key, { attachment, entry, offset }] of this.#holdings) {
      if (!entry.missing || !this.#placeAt(attachment, this.#holders.of(key))) continue;
      this.blocks.removeOwner(entry, offset, key);
    }
    const waiting = [...this.#unknown.values()].sort((a, b) => a.ifindex - b.ifindex);
    for (const restored of waiting) {
      if (this.#placeAt(restored, restored.addresses)) this.#unknown.delete(keyOf(restored));
    }
  }

  /** True if a block of this node has these addresses, and no other attachment owns them. */
  #placeAt(attachment: Attachment, addresses: readonly IpAddress[]): boolean {
    for (const entry of this.blocks.entries) {
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
function unownedKey(ifindex: number): string {
  return `/link/${ifindex}`;
}
