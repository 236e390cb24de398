import { Deferred } from "#base/async";
import type { Clock } from "#base/clock";
import type { IpAddress } from "#base/ip";
import type { AddressHolders, HolderChange } from "./address-holders.ts";
import type { BlockListing, OwnedBlock } from "./block-source.ts";
import { type Entry, isIn, isUsable, newEntry, noteHolder } from "./entry.ts";

/** A live list in flight. Its result says nothing about blocks that became known or were released after its start. */
export interface Listing {
  readonly startedAt: number;
}

/**
 * The blocks of this node, by lists, watches and its own releases; `AddressTable` knows the holders of their addresses. Pure memory.
 * Each change and the start of each list has an epoch, so that a result that is older than the known state is ignored.
 */
export class NodeBlocks {
  readonly #clock: Clock;
  readonly #holders: AddressHolders;
  readonly #entries = new Map<string, Entry>();
  readonly #listings = new Set<Listing>();
  /** UID → epoch of blocks that are deleted while a list is in flight; emptied when no list is in flight. */
  readonly #gone = new Map<string, number>();
  #epoch = 0;
  #complete = false;
  /** For each pool, a promise that settles when all running releases have ended. */
  readonly #releases = new Map<string, Deferred>();

  /** Addresses that have a holder are taken in a new block from the start. */
  constructor(clock: Clock, holders: AddressHolders) {
    this.#clock = clock;
    this.#holders = holders;
  }

  /** All blocks, including missing ones. */
  get entries(): MapIterator<Entry> {
    return this.#entries.values();
  }

  /** The blocks that exist in the API. */
  get present(): readonly OwnedBlock[] {
    return [...this.entries].filter((entry) => !entry.missing).map((entry) => entry.block);
  }

  /** Usable blocks of the pool that have a free slot. */
  withFreeSlots(pool: string): Entry[] {
    return [...this.entries].filter((one) => one.block.pool === pool && isUsable(one) && one.slots.free > 0);
  }

  /** True when a usable block of these names is already full because of addresses that were in use before. */
  isFull(names: ReadonlySet<string>): boolean {
    return [...this.entries].some((entry) => names.has(entry.block.name) && isUsable(entry) && entry.slots.free === 0);
  }

  /** Applies a change of an address's holders. True if that has emptied a block. */
  noteHolder(change: HolderChange): boolean {
    const nowMs = this.#clock.monotonic();
    let emptied = false;
    for (const entry of this.entries) emptied = noteHolder(entry, change, this.#holders, nowMs) || emptied;
    return emptied;
  }

  beginListing(): Listing {
    this.#epoch += 1;
    const listing = { startedAt: this.#epoch };
    this.#listings.add(listing);
    return listing;
  }

  /**
   * Applies a live list of all blocks of this node. True when the set of blocks changed. A list of one pool could not distinguish a deleted
   * block from a block whose pool label was edited. If lists overlap, the list that began later counts.
   */
  endListing(listing: Listing, found: BlockListing): boolean {
    const before = this.present.map((block) => block.uid).join();
    const listed = new Set(found.blocks.map((block) => block.uid));
    for (const entry of this.entries) {
      if (entry.seenAt > listing.startedAt || listed.has(entry.block.uid)) continue;
      // An edited, unreadable block is still this node's: its pods keep running, and no other address of it is allocated.
      if (found.unreadable.has(entry.block.name)) entry.suspectSince ??= this.#epoch;
      else this.#lose(entry, listing);
    }
    this.#complete = found.unreadable.size === 0;
    for (const block of found.blocks) {
      if ((this.#gone.get(block.uid) ?? -1) < listing.startedAt) this.#learn(block, listing);
    }
    return before !== this.present.map((block) => block.uid).join();
  }

  /** Ends a list, with or without success. */
  abandonListing(listing: Listing): void {
    this.#listings.delete(listing);
    if (this.#listings.size === 0) this.#gone.clear();
  }

  /** True when the given state of a block differs from the known one, except by this node's own release. */
  differs({ uid, deleting }: Pick<OwnedBlock, "uid" | "deleting">): boolean {
    const entry = this.#entries.get(uid);
    if (entry === undefined) return !deleting;
    if (entry.releasing) return false;
    return entry.missing || entry.suspectSince !== undefined || entry.block.deleting !== deleting;
  }

  /** True when the last list of all blocks had no malformed block. */
  get complete(): boolean {
    return this.#complete;
  }

  /** Returns true if an address is in a block of this node. */
  covers(address: IpAddress): boolean {
    for (const entry of this.entries) if (!entry.missing && isIn(entry.block, address)) return true;
    return false;
  }

  /** True when the pool has suspect blocks, which a list may make usable. */
  hasSuspect(pool: string): boolean {
    for (const { block, suspectSince } of this.entries) {
      if (block.pool === pool && suspectSince !== undefined) return true;
    }
    return false;
  }

  /** Resolves when no block of the pool is being released. */
  async released(pool: string): Promise<void> {
    await this.#releases.get(pool)?.promise;
  }

  knows(uid: string): boolean {
    return this.#entries.has(uid);
  }

  /**
   * Marks a block that was deleted according to an event: nothing is allocated from it until a later list shows it. True if the mark is
   * new.
   */
  suspect(uid: string): boolean {
    const entry = this.#entries.get(uid);
    if (entry === undefined || entry.releasing || entry.missing) return false;
    this.#epoch += 1;
    entry.suspectSince = this.#epoch;
    return true;
  }

  /** The UIDs of the blocks that have been empty for `delayMs`, except those of pools that are kept. */
  dueForRelease(delayMs: number, isKept: (pool: string) => boolean): readonly string[] {
    const due = [...this.entries].filter((entry) => this.#isDue(entry, delayMs, isKept));
    return due.map(({ block }) => block.uid);
  }

  /**
   * The block if it is due still; nothing is allocated from it until {@link NodeBlocks.endRelease}. One block at a time: each return takes three requests, and
   * those that wait for their turn can be used.
   */
  beginRelease(uid: string, delayMs: number, isKept: (pool: string) => boolean): OwnedBlock | undefined {
    const entry = this.#entries.get(uid);
    if (entry === undefined || !this.#isDue(entry, delayMs, isKept)) return undefined;
    entry.releasing = true;
    if (!this.#releases.has(entry.block.pool)) this.#releases.set(entry.block.pool, new Deferred());
    return entry.block;
  }

  /**
   * `released`: the block is deleted. Otherwise its state is unknown: the answer may have been lost after the deletion, and the block may
   * belong to another node. It can be used again when a list that began later shows it.
   */
  endRelease(block: OwnedBlock, released: boolean): void {
    const entry = this.#entries.get(block.uid);
    this.#epoch += 1;
    if (entry !== undefined) entry.releasing = false;
    if (released) {
      this.#entries.delete(block.uid);
      this.#gone.set(block.uid, this.#epoch);
    } else if (entry !== undefined) {
      entry.suspectSince = this.#epoch;
    }
    for (const { block: other, releasing } of this.entries) if (releasing && other.pool === block.pool) return;
    this.#releases.get(block.pool)?.resolve();
    this.#releases.delete(block.pool);
  }

  /** Removes a slot's owner, unless the slot has another owner meanwhile. A missing block is forgotten with its last owner. */
  removeOwner(entry: Entry, offset: number, owner: string): void {
    if (entry.owners.get(offset) === owner) entry.owners.delete(offset);
    if (entry.missing && entry.owners.size === 0) this.#entries.delete(entry.block.uid);
  }

  #isDue(entry: Entry, delayMs: number, isKept: (pool: string) => boolean): boolean {
    const { block, releasing, missing, emptySince } = entry;
    if (block.reserved || releasing || missing || emptySince === undefined) return false;
    return this.#clock.monotonic() - emptySince >= delayMs && !isKept(block.pool);
  }

  #learn(block: OwnedBlock, listing: Listing): void {
    const known = this.#entries.get(block.uid);
    if (known === undefined) {
      this.#epoch += 1;
      const at = { epoch: listing.startedAt, nowMs: this.#clock.monotonic() };
      this.#entries.set(block.uid, newEntry(block, this.#holders, at));
      return;
    }
    if (known.seenAt > listing.startedAt) return;
    // The entry keeps the prefixes from which addresses were allocated, even if the object was edited.
    known.block = { ...block, ipv4: known.block.ipv4, ipv6: known.block.ipv6 };
    known.missing = false;
    known.seenAt = listing.startedAt;
    if (known.suspectSince !== undefined && known.suspectSince <= listing.startedAt) known.suspectSince = undefined;
  }

  #lose(entry: Entry, listing: Listing): void {
    if (entry.owners.size > 0) {
      entry.missing = true;
      entry.seenAt = listing.startedAt;
      return;
    }
    this.#entries.delete(entry.block.uid);
    this.#gone.set(entry.block.uid, listing.startedAt);
  }
}
