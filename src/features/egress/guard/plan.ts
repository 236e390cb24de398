import type { NftBase, NftSetSpec, NftTable } from "#kernel/nft";
import type { ByteString, Verdict } from "#kernel/nft-elements";
import type { AddressRange } from "./ranges.ts";

/** A table that judges the packets of tunnels in one namespace, as data. It is ours as a whole. */
export interface GuardPlan {
  readonly table: NftTable & { readonly family: "inet" };
  readonly sets: readonly GuardSet[];
  readonly chains: readonly GuardChain[];
}

/** A set of the table with all its elements. */
export interface GuardSet {
  readonly name: string;
  readonly spec: NftSetSpec;
  /** `by-rules`: the kernel adds elements when rules meet packets, and they expire. */
  readonly elements: readonly GuardElement[] | { readonly ranges: readonly AddressRange[] } | "by-rules";
}

/** One element, in the spelling of nft(8) and in the kernel's layout. */
export interface GuardElement {
  readonly text: readonly string[];
  readonly key: ByteString;
  /** The value of a map's element; other sets have none. */
  readonly value?: { readonly text: readonly string[]; readonly raw: Verdict };
}

export interface GuardChain {
  readonly name: string;
  /** Absent: other chains lead here. */
  readonly base?: NftBase;
  readonly rules: readonly GuardRule[];
}

export interface GuardRule {
  /** In nft(8) syntax. */
  readonly rule: string;
  /** The label under which the rule counts packets: the reason for which it drops them, or what it does with them. Absent: the rule counts none. */
  readonly reason?: string;
}

/** Packets that rules have counted under one label. */
export interface GuardCounter {
  readonly reason: string;
  readonly packets: number;
  readonly bytes: number;
}
