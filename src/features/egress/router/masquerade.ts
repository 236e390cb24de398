import { createHash } from "node:crypto";
import type { IpAddress, IpFamily } from "#base/ip";
import { type Nft, type NftBase, type NftChange, NftError, type NftRule, NftTransaction } from "#kernel/nft";
import type { RouterPod } from "./plan.ts";

/** A rule of a router in one of its two chains of a family. */
export interface RouterRule {
  readonly family: IpFamily;
  readonly table: "nat" | "filter";
  /** The rule in nft(8) syntax. */
  readonly rule: string;
  /** Marks the rule as ours, and changes with its text: the kernel spells a rule in another way than it was given. */
  readonly comment: string;
}

const CHAINS: Readonly<Record<RouterRule["table"], { readonly name: string; readonly base: NftBase }>> = {
  nat: { name: "POSTROUTING", base: { type: "nat", hook: "postrouting", priority: "srcnat" } },
  filter: { name: "FORWARD", base: { type: "filter", hook: "forward", priority: "filter" } },
};
const MARK = "coil-egress";
const TABLE_FAMILY = { 4: "ip", 6: "ip6" } as const;

/** Pure: what leaves by the router's interface has its address, unless it is the router's own or is not part of a connection (docs/spec/pod-network.md#9). */
export function planMasquerade({ addresses, ifname }: Pick<RouterPod, "addresses" | "ifname">): RouterRule[] {
  return ([4, 6] as const).flatMap((family) => {
    const address: IpAddress | undefined = addresses[family];
    if (address === undefined) return [];
    const ip = TABLE_FAMILY[family];
    return [
      ruleOf(family, "nat", `${ip} saddr != ${address} oifname "${ifname}" counter masquerade`),
      ruleOf(family, "filter", `oifname "${ifname}" ct state invalid counter drop`),
    ];
  });
}

function ruleOf(family: IpFamily, table: RouterRule["table"], rule: string): RouterRule {
  const hash = createHash("sha1").update(rule).digest("hex").slice(0, 8);
  return { family, table, rule, comment: `${MARK} ${hash}` };
}

/**
 * Brings the rules of ours in a router's tables `nat` and `filter` to `wanted`, and returns the number of rules added and deleted. Other
 * rules of the tables stay. One transaction for each table. Throws `NftError`.
 */
export function syncMasquerade(nft: Nft, wanted: readonly RouterRule[]): number {
  let changes = 0;
  for (const family of [4, 6] as const) {
    for (const table of ["nat", "filter"] as const) {
      const rules = wanted.filter((rule) => rule.family === family && rule.table === table);
      const transaction = diffTable({ family, table }, rules, listOurs(nft, { family, table }));
      if (transaction.length === 0) continue;
      nft.run(transaction);
      changes += transaction.filter(({ kind }) => kind === "rule").length;
    }
  }
  return changes;
}

interface Place {
  readonly family: IpFamily;
  readonly table: RouterRule["table"];
}

function listOurs(nft: Nft, { family, table }: Place): readonly NftRule[] {
  try {
    const rules = nft.listRules({ family: TABLE_FAMILY[family], name: table }, CHAINS[table].name);
    return rules.filter(({ comment }) => comment?.startsWith(`${MARK} `));
  } catch (error) {
    if (!(error instanceof NftError) || error.code !== "not-found") throw error;
    return [];
  }
}

/** Pure: the changes of one table. */
function diffTable({ family, table }: Place, wanted: readonly RouterRule[], actual: readonly NftRule[]): NftChange[] {
  const left = new Map(actual.map((rule) => [rule.comment, rule]));
  const surplus = actual.filter((rule) => left.get(rule.comment) !== rule);
  const missing = wanted.filter(({ comment }) => !left.delete(comment));
  const stale = [...left.values(), ...surplus];
  if (missing.length === 0 && stale.length === 0) return [];
  const { name, base } = CHAINS[table];
  const at = { family: TABLE_FAMILY[family], name: table };
  const add = new NftTransaction(at).addTable().chain(name, base);
  for (const { rule, comment } of missing) add.rule(name, rule, { comment });
  const remove = stale.map(({ handle }) => ({ op: "delete", kind: "rule", table: at, chain: name, handle }) as const);
  return [...add, ...remove];
}
