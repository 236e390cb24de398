import type { Clock } from "#base/clock";
import type { IpAddress } from "#base/ip";
import type { OwnedBlock } from "./block-source.ts";
import type { Assignment, Attachment, Restored } from "./node-ipam.ts";
import { Slots } from "./slots.ts";

/** A block with what is handed out of it. */
interface Entry {
  block: OwnedBlock;
  readonly slots: Slots;
  readonly owners: Map<number, string>;
  /** Being given back: nothing is allocated from it. */
  releasing: boolean;
  /** Gone from the API while addresses of it are in use. */
  missing: boolean;
  /** Epoch of a release that failed: it may have been done all the same. Until a later list shows the block, nothing is allocated. */
  doubtfulSince: number | undefined;
  /** Monotonic milliseconds since when it is empty; `undefined` while it is not. */
  emptySince: number | undefined;
  /** Epoch at which it became known. */
  readonly addedAt: number;
}

interface Holding {
  readonly attachment: Attachment;
  readonly entry: Entry;
  readonly offset: number;
}

/** A live list in flight: what became known or was released after its start is not judged by it. */
export interface Listing {
  readonly startedAt: number;
}

/**
 * Which blocks this node has and which attachment holds which address. Pure memory: no waiting, no I/O, every method
 * leaves the invariants of `NodeIpam` true.
 */
export class BlockTable {
  readonly #clock: Clock;
  readonly #entries = new Map<string, Entry>();
  readonly #holdings = new Map<string, Holding>();
  readonly #unknown = new Map<string, Restored>();
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

  get blocks(): readonly OwnedBlock[] {
    return [...this.#entries.values()].filter((entry) => !entry.missing).map((entry) => entry.block);
  }

  remember(restored: readonly Restored[]): void {
    for (const one of restored) this.#unknown.set(keyOf(one), one);
    this.#placeUnknown();
  }

  assigned(attachment: Attachment): Assignment | undefined {
    const holding = this.#holdings.get(keyOf(attachment));
    return holding === undefined ? undefined : assignmentOf(holding.entry.block, holding.offset);
  }

  /** Takes the next address of the fullest usable block of the pool; `undefined` when none has room. */
  assign(pool: string, attachment: Attachment): Assignment | undefined {
    const entry = [...this.#entries.values()]
      .filter((one) => one.block.pool === pool && isUsable(one) && one.slots.free > 0)
      .sort((a, b) => a.slots.free - b.slots.free || a.block.index - b.block.index)[0];
    const offset = entry?.slots.take();
    if (entry === undefined || offset === undefined) return undefined;
    this.#hold(entry, offset, attachment);
    return assignmentOf(entry.block, offset);
  }

  /** Whether {@link BlockTable.assign} would find an address. */
  hasRoom(pool: string): boolean {
    return [...this.#entries.values()].some((one) => one.block.pool === pool && isUsable(one) && one.slots.free > 0);
  }

  /** Frees what the attachment holds. True when that emptied a block. */
  free(attachment: Attachment): boolean {
    const key = keyOf(attachment);
    this.#unknown.delete(key);
    const holding = this.#holdings.get(key);
    if (holding === undefined) return false;
    this.#holdings.delete(key);
    const { entry, offset } = holding;
    // The slot is cleared for its owner only.
    if (entry.owners.get(offset) !== key) return false;
    entry.owners.delete(offset);
    entry.slots.release(offset);
    if (entry.owners.size > 0) return false;
    entry.emptySince = this.#clock.monotonic();
    if (entry.missing) this.#entries.delete(entry.block.uid);
    return true;
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
    for (const block of found) {
      if ((this.#released.get(block.uid) ?? -1) < listing.startedAt) this.#learn(block, listing);
    }
    for (const entry of this.#entries.values()) {
      const judged = (pool === undefined || entry.block.pool === pool) && entry.addedAt <= listing.startedAt;
      if (judged && !listed.has(entry.block.uid)) this.#lose(entry);
    }
    this.#placeUnknown();
    return before !== this.blocks.map((block) => block.uid).join();
  }

  /** Ends a listing, however it went. */
  abandonListing(listing: Listing): void {
    this.#listings.delete(listing);
    if (this.#listings.size === 0) this.#released.clear();
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
        entry.owners.size === 0 &&
        entry.emptySince !== undefined &&
        this.#clock.monotonic() - entry.emptySince >= delayMs,
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
  snapshot() {
    return {
      blocks: [...this.#entries.values()].map(({ block, slots, releasing, missing }) => ({
        name: block.name,
        uid: block.uid,
        pool: block.pool,
        index: block.index,
        ipv4: block.ipv4?.toString(),
        ipv6: block.ipv6?.toString(),
        reserved: block.reserved,
        deleting: block.deleting,
        releasing,
        missing,
        used: slots.used,
        free: slots.free,
      })),
      attachments: [...this.#holdings.values()].map(({ attachment, entry, offset }) => {
        const { pool, block, ipv4, ipv6 } = assignmentOf(entry.block, offset);
        return { ...attachment, pool, block, ipv4: ipv4?.toString(), ipv6: ipv6?.toString() };
      }),
      unknown: this.unknown.map(({ containerId, ifname, pool, addresses }) => ({
        containerId,
        ifname,
        pool,
        addresses: addresses.map(String),
      })),
    };
  }

  #learn(block: OwnedBlock, listing: Listing): void {
    const known = this.#entries.get(block.uid);
    if (known !== undefined) {
      known.block = block;
      known.missing = false;
      if (known.doubtfulSince !== undefined && known.doubtfulSince <= listing.startedAt)
        known.doubtfulSince = undefined;
      return;
    }
    this.#epoch += 1;
    this.#entries.set(block.uid, {
      block,
      slots: new Slots(sizeOf(block)),
      owners: new Map(),
      releasing: false,
      missing: false,
      doubtfulSince: undefined,
      emptySince: this.#clock.monotonic(),
      addedAt: this.#epoch,
    });
  }

  #lose(entry: Entry): void {
    if (entry.owners.size === 0) this.#entries.delete(entry.block.uid);
    else entry.missing = true;
  }

  #hold(entry: Entry, offset: number, attachment: Attachment): void {
    const key = keyOf(attachment);
    entry.owners.set(offset, key);
    entry.emptySince = undefined;
    const { containerId, ifname } = attachment;
    this.#holdings.set(key, { attachment: { containerId, ifname }, entry, offset });
  }

  /** Gives attachments of the kernel their place as soon as their block is known; the most recent one is placed last. */
  #placeUnknown(): void {
    const waiting = [...this.#unknown.entries()].sort(([, a], [, b]) => a.ifindex - b.ifindex);
    for (const [key, restored] of waiting) {
      const place = this.#place(restored);
      if (place === undefined) continue;
      place.entry.slots.mark(place.offset);
      place.entry.slots.continueAfter(place.offset);
      this.#hold(place.entry, place.offset, restored);
      this.#unknown.delete(key);
    }
  }

  /** The one slot whose addresses these are, if nobody holds it. */
  #place(restored: Restored): { readonly entry: Entry; readonly offset: number } | undefined {
    const first = restored.addresses[0];
    if (first === undefined) return undefined;
    for (const entry of this.#entries.values()) {
      const offset = offsetIn(entry.block, first);
      if (offset === undefined || offset >= entry.slots.capacity) continue;
      const whole = restored.addresses.every((address) => offsetIn(entry.block, address) === offset);
      return whole && !entry.owners.has(offset) ? { entry, offset } : undefined;
    }
    return undefined;
  }
}

/** Container ids have no slash (CNI specification), so the two parts stay apart. */
function keyOf({ containerId, ifname }: Attachment): string {
  return `${containerId}/${ifname}`;
}

function isUsable(entry: Entry): boolean {
  const { block, releasing, missing, doubtfulSince } = entry;
  return !block.reserved && !block.deleting && !releasing && !missing && doubtfulSince === undefined;
}

function sizeOf(block: OwnedBlock): bigint {
  return (block.ipv4 ?? block.ipv6)?.size ?? 0n;
}

function offsetIn(block: OwnedBlock, address: IpAddress): number | undefined {
  const offset = (address.family === 4 ? block.ipv4 : block.ipv6)?.indexOf(address);
  return offset === undefined ? undefined : Number(offset);
}

function assignmentOf(block: OwnedBlock, offset: number): Assignment {
  return { pool: block.pool, block: block.name, ipv4: block.ipv4?.at(offset), ipv6: block.ipv6?.at(offset) };
}
