import type { IpAddress } from "#base/ip";
import type { OwnedBlock } from "./block-source.ts";
import type { ClaimChange, Claims } from "./claims.ts";
import { Slots } from "./slots.ts";

/** A block with what is handed out of it. A slot is taken exactly while one of its addresses is claimed. */
export interface Entry {
  block: OwnedBlock;
  readonly slots: Slots;
  readonly owners: Map<number, string>;
  /** How many addresses of the block are claimed, by its owners or by others. */
  claimed: number;
  /** Being given back: nothing is allocated from it. */
  releasing: boolean;
  /** Gone from the API while addresses of it are in use. */
  missing: boolean;
  /**
   * Epoch of a release that failed, or of the news that the block is gone. Until a later list shows the block, nothing is
   * allocated from it.
   */
  doubtfulSince: number | undefined;
  /** Monotonic milliseconds since when it is empty; `undefined` while it is not. */
  emptySince: number | undefined;
  /** Epoch of the latest list that said whether it is there: older ones say nothing any more. */
  seenAt: number;
}

/** A block that has just become known. What others have of its addresses, by `claims`, is taken from the start. */
export function newEntry(block: OwnedBlock, claims: Claims, at: { readonly epoch: number; readonly nowMs: number }) {
  const entry: Entry = {
    block,
    slots: new Slots((block.ipv4 ?? block.ipv6)?.size ?? 0n),
    owners: new Map(),
    claimed: 0,
    releasing: false,
    missing: false,
    doubtfulSince: undefined,
    emptySince: at.nowMs,
    seenAt: at.epoch,
  };
  for (const address of claims.addresses()) noteClaim(entry, { address, claimed: true }, claims, at.nowMs);
  return entry;
}

/** Takes over a change of who has an address. True when that emptied the block. */
export function noteClaim(entry: Entry, change: ClaimChange, claims: Claims, nowMs: number): boolean {
  const offset = offsetIn(entry.block, change.address);
  if (offset === undefined) return false;
  entry.claimed += change.claimed ? 1 : -1;
  if (change.claimed) {
    if (offset < entry.slots.capacity) entry.slots.mark(offset);
    entry.emptySince = undefined;
    return false;
  }
  if (!addressesAt(entry.block, offset).some((address) => claims.has(address))) entry.slots.release(offset);
  if (entry.claimed > 0) return false;
  entry.emptySince = nowMs;
  return true;
}

/** Whether addresses may be handed out of it. */
export function isUsable({ block, releasing, missing, doubtfulSince }: Entry): boolean {
  return !block.reserved && !block.deleting && !releasing && !missing && doubtfulSince === undefined;
}

/** The slot that all of these addresses are of, if nobody owns it. */
export function placeIn(entry: Entry, addresses: readonly IpAddress[]): number | undefined {
  const [offset, ...others] = addresses.map((address) => offsetIn(entry.block, address));
  if (offset === undefined || others.some((other) => other !== offset)) return undefined;
  return offset < entry.slots.capacity && !entry.owners.has(offset) ? offset : undefined;
}

/** The addresses of a slot, one of each family of the block. */
export function addressesAt(block: OwnedBlock, offset: number): IpAddress[] {
  return [block.ipv4?.at(offset), block.ipv6?.at(offset)].filter((address) => address !== undefined);
}

/** Whether an address is of the block. */
export function isIn(block: OwnedBlock, address: IpAddress): boolean {
  return offsetIn(block, address) !== undefined;
}

function offsetIn(block: OwnedBlock, address: IpAddress): number | undefined {
  const offset = (address.family === 4 ? block.ipv4 : block.ipv6)?.indexOf(address);
  return offset === undefined ? undefined : Number(offset);
}
