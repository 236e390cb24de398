/**
 * Elements of nftables' sets and maps in bulk, over nfnetlink: an element takes 2 µs, instead of 25 µs with libnftables. Does not read the
 * set first and makes no tree of objects. Tables, chains, rules and the sets themselves are made with `#kernel/nft`.
 *
 * Owns: {@link ElementBatch}, {@link NftElements}, a fake. Does not know: the meaning of keys and values; they are byte strings in
 * the kernel's layout for the set's type: each part of a concatenation padded to 4 bytes, addresses and ports in network
 * order, numbers from `numgen` in the host's. Also makes two kinds of objects that libnftables of Debian 12 cannot make: maps whose keys
 * have a random number, and rules that use them.
 *
 * ```ts
 * using elements = openNftElements(netns);
 * const batch = new ElementBatch({ family: "ip", name: "kube-proxy" }).add("cluster-ips", "\x0a\x2b\x00\x01");
 * await elements.commit(batch);
 * ```
 */
export { ElementBatch } from "./batch.ts";
export { decodeElements } from "./decode.ts";
export type { Expression } from "./expressions.ts";
export { FakeNftElements } from "./fake.ts";
export { openNftElements } from "./port.ts";
export type { NftElements, NftWriters } from "./types.ts";
export {
  type ByteString,
  type ElementTable,
  type ElementValue,
  type PartType,
  type RawElement,
  type Verdict,
  verdictText,
} from "./values.ts";
export { openNftWriters } from "./writers.ts";
