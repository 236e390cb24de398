/** The batch of a claim that a connection has confirmed; those of Nodes begin with 1. */
const CONFIRMED = 0;

/** An address that is in several Nodes, or has another Node than before. */
export interface AddressConflict {
  readonly address: string;
  /** All Nodes that have the address, by name. */
  readonly nodes: readonly string[];
  /** The owner before, and the owner now; `undefined`: there is none. */
  readonly before: string | undefined;
  readonly owner: string | undefined;
}

/** A batch has changed these. */
export interface AddressChanges {
  /** Those that a Node has got or lost. */
  readonly addresses: ReadonlySet<string>;
  readonly conflicts: readonly AddressConflict[];
}

/**
 * Decides which Node an address belongs to (docs/spec/tunnel.md#10.1). A kubelet can write any address into its own Node, so an address that is in several
 * Nodes stays with the one that was known with it first. Nodes of one batch, as those of the first list, have no order: among them a connection of the
 * Node's agent from the address decides, else the address is nobody's. Holds the addresses that present Nodes have, and no others.
 */
export class AddressOwners {
  /** For each address the batch in which each of its Nodes became known with it. */
  readonly #claims = new Map<string, Map<string, number>>();
  readonly #addresses = new Map<string, ReadonlySet<string>>();
  #batch = CONFIRMED;

  /** The Node of an address; `undefined` if it has none, or several of which none was first. */
  ownerOf(address: string): string | undefined {
    let owner: string | undefined;
    let first = Number.POSITIVE_INFINITY;
    for (const [node, batch] of this.#claims.get(address) ?? []) {
      if (batch < first) [owner, first] = [node, batch];
      else if (batch === first) owner = undefined;
    }
    return owner;
  }

  /**
   * One batch: the addresses that these Nodes have now; none: the Node is gone. Returns the addresses that a Node has got or lost, and the conflicts at
   * them. An address that moves within a batch is in one Node.
   */
  apply(changes: ReadonlyMap<string, ReadonlySet<string>>): AddressChanges {
    this.#batch += 1;
    const owners = new Map<string, string | undefined>();
    const each = (of: (before: ReadonlySet<string>, now: ReadonlySet<string>) => ReadonlySet<string>) =>
      [...changes].flatMap(([node, now]) =>
        Array.from(of(this.#addresses.get(node) ?? new Set(), now), (address) => ({ node, address })),
      );
    const lost = each(without);
    const got = each((before, now) => without(now, before));
    for (const { address } of [...lost, ...got]) owners.set(address, this.ownerOf(address));
    for (const { node, address } of lost) this.#unclaim(address, node);
    for (const { node, address } of got) this.#claim(address, node);
    for (const [node, now] of changes) {
      if (now.size === 0) this.#addresses.delete(node);
      else this.#addresses.set(node, now);
    }
    const conflicts = [...owners].flatMap(([address, before]) => this.#conflictAt(address, before) ?? []);
    return { addresses: new Set(owners.keys()), conflicts };
  }

  /** An agent of the Node connects from the address: this decides among Nodes that have no order. Returns the decision, if there was one to make. */
  confirm(node: string, address: string): AddressConflict | undefined {
    const claims = this.#claims.get(address);
    const batch = claims?.get(node);
    if (claims === undefined || batch === undefined || this.ownerOf(address) !== undefined) return undefined;
    if (batch > Math.min(...claims.values())) return undefined;
    claims.set(node, CONFIRMED);
    return this.#conflictAt(address, undefined);
  }

  /** The number of addresses that are held. */
  get size(): number {
    return this.#claims.size;
  }

  #claim(address: string, node: string): void {
    const claims = this.#claims.get(address) ?? new Map<string, number>();
    this.#claims.set(address, claims.set(node, this.#batch));
  }

  #unclaim(address: string, node: string): void {
    const claims = this.#claims.get(address);
    claims?.delete(node);
    if (claims?.size === 0) this.#claims.delete(address);
  }

  /** `undefined` where nobody else has the address, or had it. */
  #conflictAt(address: string, before: string | undefined): AddressConflict | undefined {
    const nodes = [...(this.#claims.get(address)?.keys() ?? [])].toSorted();
    const owner = this.ownerOf(address);
    const isMoved = before !== undefined && owner !== undefined && before !== owner;
    return nodes.length > 1 || isMoved ? { address, nodes, before, owner } : undefined;
  }
}

function without(one: ReadonlySet<string>, other: ReadonlySet<string>): ReadonlySet<string> {
  return new Set([...one].filter((element) => !other.has(element)));
}
