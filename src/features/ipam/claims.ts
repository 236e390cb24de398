import type { IpAddress } from "#base/ip";

/** An address that nobody had claimed before, or that nobody claims any more. */
export interface ClaimChange {
  readonly address: IpAddress;
  readonly claimed: boolean;
}

interface Claim {
  readonly address: IpAddress;
  readonly holders: Set<string>;
}

/**
 * Who has which address on this node, whatever block it belongs to: an address with a holder is not handed out. Holders
 * are attachments, and links that are none of ours but have an address of ours. Bounded by the links of the node.
 */
export class Claims {
  readonly #byAddress = new Map<string, Claim>();
  readonly #byHolder = new Map<string, readonly IpAddress[]>();

  /** Every address that somebody has. */
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

  /** Makes `addresses` all that the holder has; none: it is forgotten. Returns what that changed. */
  set(holder: string, addresses: readonly IpAddress[]): ClaimChange[] {
    const before = this.of(holder);
    if (addresses.length === 0) this.#byHolder.delete(holder);
    else this.#byHolder.set(holder, addresses);
    const taken = addresses.flatMap((address) => this.#add(holder, address));
    const kept = new Set(addresses.map(String));
    const given = before.filter((address) => !kept.has(String(address)));
    return [...taken, ...given.flatMap((address) => this.#remove(holder, address))];
  }

  #add(holder: string, address: IpAddress): ClaimChange[] {
    const known = this.#byAddress.get(String(address));
    if (known !== undefined) {
      known.holders.add(holder);
      return [];
    }
    this.#byAddress.set(String(address), { address, holders: new Set([holder]) });
    return [{ address, claimed: true }];
  }

  #remove(holder: string, address: IpAddress): ClaimChange[] {
    const known = this.#byAddress.get(String(address));
    known?.holders.delete(holder);
    if (known === undefined || known.holders.size > 0) return [];
    this.#byAddress.delete(String(address));
    return [{ address, claimed: false }];
  }
}
