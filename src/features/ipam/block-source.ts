import type { AbortOptions } from "#base/async";
import type { Cidr } from "#base/ip";

/** An AddressBlock of this node, parsed from the API object. */
export interface OwnedBlock {
  readonly name: string;
  readonly uid: string;
  readonly pool: string;
  readonly index: number;
  readonly ipv4: Cidr | undefined;
  readonly ipv6: Cidr | undefined;
  /** True if the block is counted and routed, but no address of it is allocated. */
  readonly reserved: boolean;
  /** True if the block has a deletionTimestamp, or has lost our finalizer because its release has begun: no address of it is allocated. */
  readonly deleting: boolean;
}

/** The blocks of a node, from one live list. */
export interface BlockListing {
  readonly blocks: readonly OwnedBlock[];
  /** Names of malformed blocks with this node's label, which an operator has written by hand. */
  readonly unreadable: ReadonlySet<string>;
}

/** The source of a node's blocks: the API server, or a fake in tests. All methods reject with `IpamError`. */
export interface BlockSource {
  /** Lists this node's blocks live. */
  list(options: AbortOptions): Promise<BlockListing>;
  /**
   * Requests a block in addition to the blocks of `known` names, and waits until it is allotted; a later `list` shows the new block. If an
   * earlier call has left a request, this request is used. Call `settle` after the list.
   */
  request(pool: string, known: ReadonlySet<string>, options: AbortOptions): Promise<void>;
  /** Removes the answered request of a pool. */
  settle(pool: string, options: AbortOptions): Promise<void>;
  /** Removes answered requests of this node that no ADD waits for, except those of `wantedPools`; returns their number. */
  removeAnswered(wantedPools: { has(pool: string): boolean }, options: AbortOptions): Promise<number>;
  /** Releases a block. Does nothing, and succeeds, if the block was deleted or replaced, or belongs to another node. */
  release(block: OwnedBlock, options: AbortOptions): Promise<void>;
}
