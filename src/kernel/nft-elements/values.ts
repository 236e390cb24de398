/** Bytes as a string of characters 0 to 255. A string takes less time to compare and hash, and less memory, than a buffer. */
export type ByteString = string;

/** A table of one family of IP, of both, or of ARP. */
export interface ElementTable {
  readonly family: "ip" | "ip6" | "inet" | "arp";
  readonly name: string;
}

/** Value of a verdict map. */
export type Verdict = { readonly kind: "accept" | "drop" } | { readonly kind: "goto" | "jump"; readonly chain: string };

/** Value of a map's element: bytes, or a verdict. A set's element has none. */
export type ElementValue = ByteString | Verdict;

/** An element as the kernel lists it. */
export interface RawElement {
  readonly key: ByteString;
  /** Last key of an interval of a concatenation. */
  readonly keyEnd?: ByteString;
  /** True in a set of intervals of one part if this key is the first key after an interval. */
  readonly isEnd?: true;
  readonly value?: ElementValue;
  readonly comment?: string;
  /** The time until the element expires, in milliseconds; only for elements that packets add. */
  readonly expiresInMs?: number;
}

/** A rule as the kernel lists it, without its expressions. */
export interface RawRule {
  readonly chain: string;
  readonly comment?: string;
  /** The values of the rule's first counter. */
  readonly counter?: { readonly packets: number; readonly bytes: number };
}

/** Parts of keys and values. `mark`: any 32-bit number in host byte order, such as `numgen` returns. */
export type PartType = "ipv4_addr" | "ipv6_addr" | "inet_proto" | "inet_service" | "mark";

/** A verdict as nft(8) prints it. */
export function verdictText(verdict: Verdict): string {
  return "chain" in verdict ? `${verdict.kind} ${verdict.chain}` : verdict.kind;
}
