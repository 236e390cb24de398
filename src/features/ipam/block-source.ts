import type { AbortOptions } from "#base/async";
import type { Cidr } from "#base/ip";

/** An AddressBlock of this node, as parsed from the API. */
export interface OwnedBlock {
  readonly name: string;
  readonly uid: string;
  readonly pool: string;
  readonly index: number;
  readonly ipv4: Cidr | undefined;
  readonly ipv6: Cidr | undefined;
  /** Counted and routed, never allocated from. */
  readonly reserved: boolean;
  /** It has a deletionTimestamp, or has lost our finalizer because its release has begun: nothing is allocated from it. */
  readonly deleting: boolean;
}

/** A node's blocks by one live list. */
export interface BlockListing {
  readonly blocks: readonly OwnedBlock[];
  /** Names of unreadable blocks with this node's label: written by hand, and malformed. */
  readonly unreadable: ReadonlySet<string>;
}

/** Where a node's blocks come from: the API server, or a fake in tests. All methods throw `IpamError`. */
export interface BlockSource {
  /** This node's blocks by a live list. */
  list(options: AbortOptions): Promise<BlockListing>;
  /**
   * Requests one more block than those of `known` names and waits until it is allotted; a later `list` shows it. A
   * request that was left behind by an earlier call is adopted. Call `settle` after the list.
   */
  request(pool: string, known: ReadonlySet<string>, options: AbortOptions): Promise<void>;
  /** Removes the answered request of a pool. */
  settle(pool: string, options: AbortOptions): Promise<void>;
  /** Removes answered requests of this node that no ADD waits for, except those of `wantedPools`; returns how many. */
  removeAnswered(wantedPools: { has(pool: string): boolean }, options: AbortOptions): Promise<number>;
  /** Gives a block back. A block that is gone, replaced or another node's is left alone, which is a success. */
  release(block: OwnedBlock, options: AbortOptions): Promise<void>;
}
