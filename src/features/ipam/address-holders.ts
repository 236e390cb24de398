import type { IpAddress } from "#base/ip";

/** An address that got its first holder, or lost its last one. */
export interface HolderChange {
  readonly address: IpAddress;
  readonly held: boolean;
}

interface HeldAddress {
  readonly address: IpAddress;
  readonly holders: Set<string>;
}

/**
 * The holders of each address on this node, in any block: an address with a holder is not allocated. Holders are
 * attachments, and foreign links that have an address of this node's blocks. Its size is bounded by the links of the node.
 */
export class AddressHolders {
  readonly #byAddress = new Map<string, HeldAddress>();
  readonly #byHolder = new Map<string, readonly IpAddress[]>();

  /** Every address that has a holder. */
  *addresses(): IterableIterator<IpAddress> {
    for (const { address } of this.#byAddress.values()) yield address;
  }

  has(address: IpAddress): boolean {
    return this.#byAddress.has(String(address));
  }

  of(holder: string): readonly IpAddress[] {
    return this.#byHolder.get(holder) ?? [];
  }

  /** The holders that have addresses. */
  get holders(): IterableIterator<string> {
    return this.#byHolder.keys();
  }

  /** Sets the addresses of the holder to `addresses`; without any, the holder is forgotten. Returns the addresses whose state changed. */
  set(holder: string, addresses: readonly IpAddress[]): HolderChange[] {
    const before = this.of(holder);
    if (addresses.length === 0) this.#byHolder.delete(holder);
    else this.#byHolder.set(holder, addresses);
    const taken = addresses.flatMap((address) => this.#add(holder, address));
    const kept = new Set(addresses.map(String));
    const given = before.filter((address) => !kept.has(String(address)));
    return [...taken, ...given.flatMap((address) => this.#remove(holder, address))];
  }

  #add(holder: string, address: IpAddress): HolderChange[] {
    const known = this.#byAddress.get(String(address));
    if (known !== undefined) {
      known.holders.add(holder);
      return [];
    }
    this.#byAddress.set(String(address), { address, holders: new Set([holder]) });
    return [{ address, held: true }];
  }

  #remove(holder: string, address: IpAddress): HolderChange[] {
    const known = this.#byAddress.get(String(address));
    known?.holders.delete(holder);
    if (known === undefined || known.holders.size > 0) return [];
    this.#byAddress.delete(String(address));
    return [{ address, held: false }];
  }
}
