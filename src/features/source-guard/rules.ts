import { createHash } from "node:crypto";
import { type NftBase, type NftSetSpec, type NftTable, NftTransaction } from "#kernel/nft";
import type { GuardMode, GuardReason } from "./types.ts";

/** A table of the guard as data: its sets and chains. */
export interface TablePlan {
  readonly sets: Readonly<Record<string, NftSetSpec>>;
  /** Chains in the order in which they are added: a chain comes before the rules that lead to it. */
  readonly chains: readonly { readonly name: string; readonly base?: NftBase; readonly rules: readonly string[] }[];
}

/** IPv4 and IPv6 are in one table, ARP in another: nftables has no family for all three. */
export type GuardFamily = "inet" | "arp";
export const GUARD_FAMILIES = ["inet", "arp"] as const;

/** Name of the tables. */
export const GUARD_TABLE = "source-guard";
/** A chain without rules whose name says which rules the table has. */
export const SEAL = "isthmus-guard-";
/** Link-local sources of one link. */
export const MAX_LINK_LOCAL = 8;
/** Links whose first refused packets are remembered. The kernel makes room for all of them at once, 16 bytes each and set. */
const MAX_LINKS = 2048;
/** Link-local sources of all links. When they are used up, no link gets another one. */
const MAX_SOURCES = 4096;
/** After defragmentation (-400), before connection tracking (-200) and every translation: a refused packet costs no entry. */
const PRIORITY = -290;

/** ICMPv6 types that a link-local source may send: router and neighbour discovery without what only routers send (134, 137), and MLD. */
const DISCOVERY = "icmpv6 type { 131, 132, 133, 135, 136, 143 }";
/** From the unspecified address: duplicate address detection, and MLD. */
const UNSPECIFIED = [
  "icmpv6 type 135 ip6 daddr ff02::1:ff00:0/104",
  "icmpv6 type { 131, 132, 143 } ip6 daddr ff02::/16",
];

/** The chain that ends in the counter of a reason. */
export function reasonChain(reason: GuardReason): string {
  return `refuse-${reason}`;
}

/** Which table counts a reason. */
export function familyOfReason(reason: GuardReason): GuardFamily {
  return reason === "arp" ? "arp" : "inet";
}

/** Pure: the tables. The number of rules does not depend on the links. */
export function planTables(mode: GuardMode): Readonly<Record<GuardFamily, TablePlan>> {
  const verdict = mode === "on" ? "drop" : "accept";
  const learned = (key: string, value?: string, size = MAX_LINKS): NftSetSpec => ({
    key,
    ...(value === undefined ? {} : { value }),
    flags: ["dynamic"],
    size,
  });
  const refuse = (reason: GuardReason) => ({ name: reasonChain(reason), rules: [`counter ${verdict}`] });
  const inet: TablePlan = {
    sets: {
      links: { key: "iface_index" },
      pods4: { key: "iface_index . ipv4_addr" },
      pods6: { key: "iface_index . ipv6_addr" },
      own4: { key: "ipv4_addr" },
      own6: { key: "ipv6_addr" },
      extra4: { key: "iface_index . ipv4_addr", flags: ["interval"] },
      extra6: { key: "iface_index . ipv6_addr", flags: ["interval"] },
      "link-local": learned("iface_index . ipv6_addr", undefined, MAX_SOURCES),
      budget: learned("iface_index"),
      "first-source4": learned("iface_index", "ipv4_addr"),
      "first-source6": learned("iface_index", "ipv6_addr"),
      "first-link-local": learned("iface_index", "ipv6_addr"),
      "first-outside4": learned("ipv4_addr", "iface_index"),
      "first-outside6": learned("ipv6_addr", "iface_index"),
    },
    chains: [
      refuse("source"),
      refuse("link-local"),
      refuse("outside"),
      {
        name: "other-link-local",
        rules: ["add @first-link-local { iif : ip6 saddr }", `goto ${reasonChain("link-local")}`],
      },
      { name: "to-link-local", rules: ["fib daddr . iif type local accept", "goto other-link-local"] },
      {
        name: "link-local-source",
        rules: [
          "iif . ip6 saddr @link-local accept",
          // The bucket of a link is full once, and gets one token a week.
          `update @budget { iif limit rate 1/week burst ${MAX_LINK_LOCAL} packets } add @link-local { iif . ip6 saddr } accept`,
          "goto other-link-local",
        ],
      },
      {
        name: "link-local",
        rules: [
          `${DISCOVERY} ip6 daddr ff02::/16 goto link-local-source`,
          `${DISCOVERY} fib daddr . iif type local goto link-local-source`,
          "goto other-link-local",
        ],
      },
      {
        // Sources of a range are no neighbours: the node learns nothing from them.
        name: "routed",
        rules: [
          "icmpv6 type { 133, 134, 135, 137 } goto other-link-local",
          "ip6 daddr fe80::/10 goto to-link-local",
          "accept",
        ],
      },
      {
        name: "pod6",
        rules: [
          "ip6 saddr fe80::/10 goto link-local",
          "iif . ip6 saddr @pods6 goto to-link-local",
          ...UNSPECIFIED.map((match) => `ip6 saddr :: ${match} accept`),
          "iif . ip6 saddr @extra6 goto routed",
          "add @first-source6 { iif : ip6 saddr }",
          `goto ${reasonChain("source")}`,
        ],
      },
      {
        name: "pod",
        rules: [
          "meta nfproto ipv6 goto pod6",
          "iif . ip saddr @extra4 accept",
          "add @first-source4 { iif : ip saddr }",
          `goto ${reasonChain("source")}`,
        ],
      },
      { name: "outside4", rules: ["add @first-outside4 { ip saddr : iif }", `goto ${reasonChain("outside")}`] },
      { name: "outside6", rules: ["add @first-outside6 { ip6 saddr : iif }", `goto ${reasonChain("outside")}`] },
      {
        name: "prerouting",
        base: { type: "filter", hook: "prerouting", priority: PRIORITY, policy: "accept" },
        rules: [
          // One lookup for each packet of a pod.
          "iif . ip saddr @pods4 accept",
          // To a link-local address the node would resolve whatever a pod names.
          "iif . ip6 saddr @pods6 ip6 daddr != fe80::/10 accept",
          "iif @links goto pod",
          "iiftype loopback accept",
          // Only while the node has its way to the address by a guarded link: what a release without a guard leaves here cuts nobody.
          "ip saddr @own4 fib saddr oif @links goto outside4",
          "ip6 saddr @own6 fib saddr oif @links goto outside6",
        ],
      },
    ],
  };
  const arp: TablePlan = {
    sets: {
      links: { key: "iface_index" },
      pods4: { key: "iface_index . ipv4_addr" },
      "first-arp": learned("iface_index", "ipv4_addr"),
    },
    chains: [
      refuse("arp"),
      {
        name: "pod",
        rules: [
          // A probe (RFC 5227) for the pod's own address.
          "arp operation request arp saddr ip 0.0.0.0 iif . arp daddr ip @pods4 accept",
          "add @first-arp { iif : arp saddr ip }",
          `goto ${reasonChain("arp")}`,
        ],
      },
      {
        name: "input",
        base: { type: "filter", hook: "input", priority: 0, policy: "accept" },
        rules: ["iif . arp saddr ip @pods4 accept", "iif @links goto pod"],
      },
    ],
  };
  return { inet: sealed(inet), arp: sealed(arp) };
}

/** Adds the chain whose name is the digest of the table. */
function sealed(plan: TablePlan): TablePlan {
  const digest = createHash("sha256").update(JSON.stringify(plan)).digest("hex").slice(0, 16);
  return { ...plan, chains: [...plan.chains, { name: `${SEAL}${digest}`, rules: [] }] };
}

/** Returns true if a table is the guard's, by its names. */
export function isGuardTable(names: { readonly chains: readonly string[] } | undefined): boolean {
  return names?.chains.some((chain) => chain.startsWith(SEAL)) === true;
}

/** A transaction after which the table has the plan's sets and rules, and no elements. */
export function replaceTable(table: NftTable, plan: TablePlan): NftTransaction {
  const tx = new NftTransaction(table).replaceTable();
  for (const [name, spec] of Object.entries(plan.sets)) tx.set(name, spec);
  for (const { name, base } of plan.chains) tx.chain(name, base);
  for (const { name, rules } of plan.chains) for (const rule of rules) tx.rule(name, rule);
  return tx;
}
