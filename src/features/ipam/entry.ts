import type { IpAddress } from "#base/ip";
import type { AddressHolders, HolderChange } from "./address-holders.ts";
import type { OwnedBlock } from "./block-source.ts";
import { Slots } from "./slots.ts";

/** A block and its allocated addresses. A slot is taken as long as one of its addresses has a holder. */
export interface Entry {
  block: OwnedBlock;
  readonly slots: Slots;
  readonly owners: Map<number, string>;
  /** The number of addresses of the block that have a holder: an owner of a slot, or a foreign link. */
  heldCount: number;
  /** True while the block is being released: no address of it is allocated. */
  releasing: boolean;
  /** True if the API server has deleted the block while its addresses are in use. */
  missing: boolean;
  /**
   * Epoch of a failed release, or of the event that the block was deleted. Until a later list shows the block, nothing is
   * allocated from it.
   */
  suspectSince: number | undefined;
  /** The time at which the block became empty, monotonic milliseconds; `undefined` while it is not empty. */
  emptySince: number | undefined;
  /** Epoch of the latest list that decided whether the block exists; older lists are ignored. */
  seenAt: number;
}

/** Makes the entry of a new block. Addresses that already have a holder are taken from the start. */
export function newEntry(
  block: OwnedBlock,
  holders: AddressHolders,
  at: { readonly epoch: number; readonly nowMs: number },
) {
  const entry: Entry = {
    block,
    slots: new Slots((block.ipv4 ?? block.ipv6)?.size ?? 0n),
    owners: new Map(),
    heldCount: 0,
    releasing: false,
    missing: false,
    suspectSince: undefined,
    emptySince: at.nowMs,
    seenAt: at.epoch,
  };
  for (const address of holders.addresses()) noteHolder(entry, { address, held: true }, holders, at.nowMs);
  return entry;
}

/** Applies a change of an address's holders. True if that has emptied the block. */
export function noteHolder(entry: Entry, change: HolderChange, holders: AddressHolders, nowMs: number): boolean {
  const offset = offsetIn(entry.block, change.address);
  if (offset === undefined) return false;
  entry.heldCount += change.held ? 1 : -1;
  if (change.held) {
    if (offset < entry.slots.capacity) entry.slots.mark(offset);
    entry.emptySince = undefined;
    return false;
  }
  if (!addressesAt(entry.block, offset).some((address) => holders.has(address))) entry.slots.release(offset);
  if (entry.heldCount > 0) return false;
  entry.emptySince = nowMs;
  return true;
}

/** Returns true if addresses of the block may be allocated. */
export function isUsable({ block, releasing, missing, suspectSince }: Entry): boolean {
  return !block.reserved && !block.deleting && !releasing && !missing && suspectSince === undefined;
}

/** The slot that has all of these addresses, if no attachment owns it. */
export function placeIn(entry: Entry, addresses: readonly IpAddress[]): number | undefined {
  const [offset, ...others] = addresses.map((address) => offsetIn(entry.block, address));
  if (offset === undefined || others.some((other) => other !== offset)) return undefined;
  return offset < entry.slots.capacity && !entry.owners.has(offset) ? offset : undefined;
}

/** The addresses of a slot, one of each family of the block. */
export function addressesAt(block: OwnedBlock, offset: number): IpAddress[] {
  return [block.ipv4?.at(offset), block.ipv6?.at(offset)].filter((address) => address !== undefined);
}

/** Returns true if an address is in the block. */
export function isIn(block: OwnedBlock, address: IpAddress): boolean {
  return offsetIn(block, address) !== undefined;
}

function offsetIn(block: OwnedBlock, address: IpAddress): number | undefined {
  const offset = (address.family === 4 ? block.ipv4 : block.ipv6)?.indexOf(address);
  return offset === undefined ? undefined : Number(offset);
}
