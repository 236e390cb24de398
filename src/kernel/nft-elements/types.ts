import type { AbortOptions } from "#base/async";
import type { ElementBatch } from "./batch.ts";
import type { Expression } from "./expressions.ts";

/** Bytes as a string of characters 0 to 255: compares, hashes and is kept far cheaper than a buffer of its own. */
export type ByteString = string;

/** A table of one family of IP. */
export interface ElementTable {
  readonly family: "ip" | "ip6" | "inet";
  readonly name: string;
}

/** What a verdict map says. */
export type Verdict = { readonly kind: "accept" | "drop" } | { readonly kind: "goto" | "jump"; readonly chain: string };

/** Of a map's element: bytes, or a verdict. A set's element has none. */
export type ElementValue = ByteString | Verdict;

/** As the kernel lists it. */
export interface RawElement {
  readonly key: ByteString;
  /** Of an interval of a concatenation: the last key. */
  readonly keyEnd?: ByteString;
  /** Of a set of intervals of one part: the first key behind one. */
  readonly isEnd?: true;
  readonly value?: ElementValue;
  readonly comment?: string;
  /** Of elements that packets make: milliseconds until the kernel forgets it. */
  readonly expiresInMs?: number;
}

/** Parts of keys and values. `mark`: any 32-bit number in the host's order, such as `numgen` draws. */
export type PartType = "ipv4_addr" | "ipv6_addr" | "inet_proto" | "inet_service" | "mark";

/** One change of a batch, as plain data. */
export type ElementChange =
  | {
      readonly op: "add";
      readonly set: string;
      readonly key: ByteString;
      readonly value?: ElementValue;
      readonly comment?: string;
      readonly keyEnd?: ByteString;
    }
  | { readonly op: "delete"; readonly set: string; readonly key: ByteString; readonly keyEnd?: ByteString }
  | { readonly op: "flush"; readonly set: string }
  | { readonly op: "empty"; readonly set: string; readonly chain: string }
  | { readonly op: "map"; readonly set: string; readonly key: readonly PartType[]; readonly value: readonly PartType[] }
  | { readonly op: "rule"; readonly set: string; readonly chain: string; readonly expressions: readonly Expression[] };

/** The elements of one namespace. Every method throws or rejects with `KernelError`. Whoever opens it disposes it. */
export interface NftElements extends Disposable {
  /** Batches must record their changes: a fake reads those, not the bytes. */
  readonly wantsRecords: boolean;
  /**
   * Applies a batch whole or not at all, in the order of its changes. `already-exists`: an element is there with another value;
   * `not-found`: a deleted one is not there, or a set or chain is not. A large batch is worked off on a thread of the pool. The
   * signal is heeded until it is sent.
   */
  commit(batch: ElementBatch, options?: AbortOptions): Promise<void>;
  /**
   * All elements of a set or map; `not-found` when there is no such set. 1 µs an element, on the calling thread. While the kernel
   * enlarges a set that has just grown by thousands, some may be missing.
   */
  list(table: ElementTable, set: string): RawElement[];
  /**
   * As {@link NftElements.list}, in slices between which the event loop turns. What changes meanwhile may be there or not: where that counts, compare
   * {@link NftElements.generation} before and after. The signal is heeded between slices.
   */
  listInSlices(table: ElementTable, set: string, options?: AbortOptions): Promise<RawElement[]>;
  /** The names of a table's chains and sets, without reading what is in them; `undefined` when there is no such table. */
  names(table: ElementTable): { readonly chains: readonly string[]; readonly sets: readonly string[] } | undefined;
  /**
   * The rules of a table, each as its chain and the handle that the kernel gave it: whatever is done to a rule gives another list. Empty
   * where there is no such table.
   */
  ruleHandles(table: ElementTable): string[];
  /**
   * What a table is but for its elements, a line each: its flags, chains with their hooks and policies, sets, rules; all with the handles that
   * the kernel gave them, so that whatever is done to one of them gives other lines. Empty where there is no such table.
   */
  structure(table: ElementTable): string[];
  /** One element by its key, without reading the set. */
  find(table: ElementTable, set: string, key: ByteString): RawElement | undefined;
  /** Counts every transaction of this namespace, whoever makes it: it moved by more than ours, so somebody else changed something. */
  generation(): number;
}

/** A thread that changed nftables. */
export interface NftWriter {
  /** As the kernel counts them, whatever namespace of processes we are in. */
  readonly pid: number;
  /** Of the thread, 15 characters at most. */
  readonly name: string;
}

/** Who changes nftables in a namespace. The kernel tells of every transaction only while this is open. Whoever opens it disposes it. */
export interface NftWriters extends Disposable {
  /** Those since the last call, ourselves not among them; of very many transactions some may be missing. Throws `KernelError`. */
  take(): NftWriter[];
}

/** As nft(8) prints a verdict. */
export function verdictText(verdict: Verdict): string {
  return "chain" in verdict ? `${verdict.kind} ${verdict.chain}` : verdict.kind;
}
