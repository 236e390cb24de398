import { createHash } from "node:crypto";
import type { IpFamily } from "#base/ip";
import type { RouterPod } from "./plan.ts";

/** A rule of a router: what leaves gets the router's address, and packets that belong to no connection do not leave. */
export interface RouterRule {
  readonly family: IpFamily;
  readonly kind: "masquerade" | "invalid";
  /** For `masquerade`: the router's own address, which stays. */
  readonly address: string;
  readonly ifname: string;
}

/** What a rule has matched since it was made. */
export interface RouterRuleCounter {
  readonly family: IpFamily;
  readonly kind: RouterRule["kind"];
  readonly packets: number;
  readonly bytes: number;
}

/** The packet filter of a router: nftables or iptables. */
export interface RuleBackend {
  /**
   * Brings our rules to `wanted`, and returns the number of rules added and deleted. Rules of others stay. Throws `NftError` or
   * `IptablesError`.
   */
  sync(wanted: readonly RouterRule[]): Promise<number>;
  /** The counters of our rules. Throws as {@link RuleBackend.sync}. */
  counters(): Promise<readonly RouterRuleCounter[]>;
}

/** The table and the chain of each kind of rule, by Coil's names. */
export const PLACES = {
  masquerade: { table: "nat", chain: "POSTROUTING" },
  invalid: { table: "filter", chain: "FORWARD" },
} as const;
export const KINDS = ["masquerade", "invalid"] as const;

const MARK = "coil-egress";

/** The comment that marks a rule as ours. It changes with the rule: the kernel spells rules in another way than they were given. */
export function commentOf(rule: RouterRule): string {
  const hash = createHash("sha1").update(JSON.stringify(rule)).digest("hex").slice(0, 8);
  return `${MARK} ${hash}`;
}

/** Whether a comment is one that {@link commentOf} makes. */
export function isOurComment(comment: string | undefined): boolean {
  return comment !== undefined && /^coil-egress [0-9a-f]{8}$/.test(comment);
}

/** Pure: the rules of a router (docs/spec/pod-network.md#9). */
export function planRules({ addresses, ifname }: Pick<RouterPod, "addresses" | "ifname">): RouterRule[] {
  return ([4, 6] as const).flatMap((family) => {
    const address = addresses[family];
    if (address === undefined) return [];
    return KINDS.map((kind) => ({ family, kind, address: kind === "masquerade" ? String(address) : "", ifname }));
  });
}

/** Pure: which of `wanted` are missing, and which of ours are to go. Of two rules with the same comment the second goes. */
export function diffComments<T extends { readonly comment: string }>(
  wanted: readonly RouterRule[],
  actual: readonly T[],
): { readonly missing: readonly RouterRule[]; readonly stale: readonly T[] } {
  const left = new Map<string, T>();
  const stale: T[] = [];
  for (const rule of actual) {
    if (left.has(rule.comment)) stale.push(rule);
    else left.set(rule.comment, rule);
  }
  const missing = wanted.filter((rule) => !left.delete(commentOf(rule)));
  return { missing, stale: [...left.values(), ...stale] };
}
