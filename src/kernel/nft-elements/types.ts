import type { AbortOptions } from "#base/async";
import type { ElementBatch } from "./batch.ts";
import type { ByteString, ElementTable, RawElement, RawRule } from "./values.ts";

/** The elements of one namespace. Every method throws or rejects with `KernelError`. The opener disposes it. */
export interface NftElements extends Disposable {
  /** Batches must record their changes: a fake reads these, not the bytes. */
  readonly wantsRecords: boolean;
  /** The largest batch that can be committed, in bytes: 32 MiB, or less without CAP_NET_ADMIN in the initial user namespace. */
  readonly maxBatchBytes: number;
  /**
   * Applies a batch whole or not at all, in the order of its changes. Rejects with `already-exists` if an element exists with another
   * value; `not-found`: a deleted element, or a set or chain, does not exist; `invalid`: it is larger than `maxBatchBytes`. A large batch is sent from a thread of the pool. The signal
   * has an effect until the batch is sent.
   */
  commit(batch: ElementBatch, options?: AbortOptions): Promise<void>;
  /**
   * As {@link NftElements.commit}, on the calling thread: 2 µs an element. For work that must not wait between two steps. Throws `busy` while a
   * commit of this object is being sent.
   */
  commitNow(batch: ElementBatch): void;
  /**
   * All elements of a set or map; `not-found` if there is no such set. 1 µs an element, on the calling thread. While the kernel
   * enlarges a set that has just grown by thousands, some may be missing.
   */
  list(table: ElementTable, set: string): RawElement[];
  /**
   * As {@link NftElements.list}, in slices, with the event loop between them. Elements that change meanwhile may be missing: to detect
   * that, compare {@link NftElements.generation} before and after. The signal has an effect between slices. With `keep`, only the elements
   * for which it is true; the others take no memory. With `limit`, at most so many of these, and the rest of the set is not read.
   */
  listInSlices(
    table: ElementTable,
    set: string,
    options?: AbortOptions & { readonly keep?: (element: RawElement) => boolean; readonly limit?: number },
  ): Promise<RawElement[]>;
  /** Names of a table's chains and sets; reads no content. `undefined` if there is no such table. */
  names(table: ElementTable): { readonly chains: readonly string[]; readonly sets: readonly string[] } | undefined;
  /**
   * The rules of a table, each as its chain and the handle that the kernel gave it: any change to a rule gives another list. Empty if there
   * is no such table.
   */
  ruleHandles(table: ElementTable): string[];
  /**
   * The rules of a table, those of a chain in their order, with comments and counters. Unlike a listing by libnftables, which reads all elements of the table's sets before, it
   * costs the rules alone. Empty if there is no such table.
   */
  rules(table: ElementTable): RawRule[];
  /**
   * A table without its elements, one line for each object: flags, chains with hooks and policies, sets, rules, with the handles that the
   * kernel gave them. Any change to one of them gives other lines. Empty if there is no such table.
   */
  structure(table: ElementTable): string[];
  /** One element by its key, without reading the set. */
  find(table: ElementTable, set: string, key: ByteString): RawElement | undefined;
  /**
   * The number of transactions of all programs in this namespace. If it grew by more than our transactions, another program has made
   * transactions.
   */
  generation(): number;
}

/** A thread that changed nftables. */
export interface NftWriter {
  /** Number of the thread in the initial PID namespace. */
  readonly pid: number;
  /** Name of the thread, at most 15 characters. */
  readonly name: string;
}

/**
 * Follows which threads change nftables in a namespace. The kernel reports transactions only while this is open. The opener disposes it.
 */
export interface NftWriters extends Disposable {
  /**
   * Other processes' threads since the last call; of very many transactions some may be missing. A transaction of this process counts as another's if
   * its socket is closed by now. Throws `KernelError`.
   */
  take(): NftWriter[];
}
