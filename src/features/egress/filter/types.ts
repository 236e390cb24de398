import type { IpFamily } from "#base/ip";
import type { NftBase } from "#kernel/nft";

/** A chain in which rules of one kind are. */
export interface FilterPlace {
  readonly table: string;
  /** Its name; the two packet filters may have different ones in a table. */
  readonly chain: { readonly nftables: string; readonly iptables: string };
  readonly base: NftBase;
}

/** One rule, in the words of both packet filters. */
export interface FilterRule<Kind extends string> {
  readonly family: IpFamily;
  readonly kind: Kind;
  /** Marks the rule as ours. It changes with the rule: the kernel spells rules in another way than they were given. */
  readonly comment: string;
  readonly nftables: string;
  /** Without chain and comment. */
  readonly iptables: readonly string[];
}

/** The kinds of rules of one owner in a namespace. */
export interface FilterKinds<Kind extends string> {
  readonly places: Readonly<Record<Kind, FilterPlace>>;
  readonly isOurs: (comment: string) => boolean;
}

/** The packets and bytes that a rule has matched since it was made. */
export interface FilterCounter<Kind extends string> {
  readonly family: IpFamily;
  readonly kind: Kind;
  readonly packets: number;
  readonly bytes: number;
}

/** One of our rules that a packet filter has. */
export type ListedRule<Kind extends string> = Pick<FilterRule<Kind>, "family" | "kind" | "comment">;

/** The packet filter of a namespace: nftables or iptables. */
export interface FilterBackend {
  /**
   * Brings our rules to `wanted`, and returns the number of rules added and deleted. Rules of others stay. Rejects with `NftError` or
   * `IptablesError`.
   */
  sync<Kind extends string>(kinds: FilterKinds<Kind>, wanted: readonly FilterRule<Kind>[]): Promise<number>;
  /** Our rules by family, kind and comment. Changes nothing. Rejects as {@link FilterBackend.sync}. */
  list<Kind extends string>(kinds: FilterKinds<Kind>): Promise<readonly ListedRule<Kind>[]>;
  /** The counters of our rules. Rejects as {@link FilterBackend.sync}. */
  counters<Kind extends string>(kinds: FilterKinds<Kind>): Promise<readonly FilterCounter<Kind>[]>;
}

/** Each kind of each family, in a fixed order. */
export function cellsOf<Kind extends string>({
  places,
}: FilterKinds<Kind>): { readonly family: IpFamily; readonly kind: Kind; readonly place: FilterPlace }[] {
  const kinds = Object.entries<FilterPlace>(places) as [Kind, FilterPlace][];
  return ([4, 6] as const).flatMap((family) => kinds.map(([kind, place]) => ({ family, kind, place })));
}

/** Pure: which of `wanted` are missing, and which of ours are to go. Of two rules with the same comment the second goes. */
export function diffComments<W extends { readonly comment: string }, T extends { readonly comment: string }>(
  wanted: readonly W[],
  actual: readonly T[],
): { readonly missing: readonly W[]; readonly stale: readonly T[] } {
  const left = new Map<string, T>();
  const stale: T[] = [];
  for (const rule of actual) {
    if (left.has(rule.comment)) stale.push(rule);
    else left.set(rule.comment, rule);
  }
  const missing = wanted.filter(({ comment }) => !left.delete(comment));
  return { missing, stale: [...left.values(), ...stale] };
}
