import type { NftBase } from "#kernel/nft";
import { SETS } from "./sets.ts";
import { frontEndKey } from "./shapes.ts";
import type { Chain, Match, Rule, RuleOptions } from "./types.ts";

/** Rejects connections to Services without endpoints. */
export const REJECT_CHAIN = "reject-chain";

/** A base chain. The policy is the default, but it is written: if another program changed a chain's policy, a repair restores it. */
const base = (type: NftBase["type"], hook: NftBase["hook"], priority: number): NftBase => ({
  type,
  hook,
  priority,
  policy: "accept",
});

/**
 * The chains that a table always has. Hooks and priorities are public API (docs/spec/service-proxy.md#2.5): source ranges and refusals
 * before translation (-110), translation at dstnat (-100), masquerade at srcnat (100).
 */
export function baseChains(options: RuleOptions, affinityTimeouts: readonly number[]): Chain[] {
  const enter = (chain: string): Rule[] => [{ matches: [{ kind: "new" }], actions: [{ kind: "jump", chain }] }];
  return [
    { name: REJECT_CHAIN, rules: rejectRules() },
    { name: "firewall", rules: firewallRules() },
    { name: "pre-dnat", rules: preDnatRules(options) },
    { name: "services", rules: servicesRules(options) },
    { name: "masquerading", rules: masqueradingRules() },
    { name: "cluster-ips-check", rules: clusterIpsRules() },
    { name: "filter-prerouting", base: base("filter", "prerouting", -110), rules: enter("pre-dnat") },
    { name: "filter-output-pre-dnat", base: base("filter", "output", -110), rules: enter("pre-dnat") },
    { name: "nat-prerouting", base: base("nat", "prerouting", -100), rules: always("services") },
    { name: "nat-output", base: base("nat", "output", -100), rules: always("services") },
    { name: "filter-forward", base: base("filter", "forward", 0), rules: enter("cluster-ips-check") },
    { name: "filter-output", base: base("filter", "output", 0), rules: enter("cluster-ips-check") },
    ...affinityChains(affinityTimeouts),
    { name: "nat-postrouting", base: base("nat", "postrouting", 100), rules: always("masquerading") },
  ];
}

/**
 * The chains that record which endpoint a client got, when a connection's first packet leaves, or arrives at an endpoint in this host's own network.
 * Later packets must not count: they would bring back the entry that an endpoint has lost, and keep it. They leave the chain by its first rule, and
 * connections that are not translated by its second, so that their cost does not depend on the number of timeouts. For the others it has one rule for
 * each timeout, kind of front end and protocol. Both have rules of their own: if they led to a third chain, the release before, which deletes chains
 * that it does not know, could not delete that one.
 */
export function affinityChains(timeouts: readonly number[]): Chain[] {
  const leave: Rule[] = (["first", "dnat"] as const).map((kind) => ({
    matches: [{ kind, not: true }],
    actions: [{ kind: "accept" }],
  }));
  const rules = timeouts.flatMap((seconds) =>
    [false, true].flatMap((isNodePort) =>
      (["TCP", "UDP", "SCTP"] as const).map(
        (protocol): Rule => ({
          matches: [{ kind: "protocol", protocols: [protocol] }],
          actions: [{ kind: "remember", seconds, isNodePort }],
        }),
      ),
    ),
  );
  return Object.entries(AFFINITY_HOOKS).map(([name, hook]) => ({
    name,
    base: base("filter", hook, 90),
    rules: rules.length === 0 ? [] : [...leave, ...rules],
  }));
}

/** The hooks of the chains that remember clients. A packet that the host itself receives does not pass `postrouting`. A packet that the host sends to itself passes both, but `input` as a later packet. */
const AFFINITY_HOOKS = { "affinity-postrouting": "postrouting", "affinity-input": "input" } as const;

/** The chains of {@link affinityChains}. */
export const AFFINITY_CHAINS: readonly string[] = Object.keys(AFFINITY_HOOKS);

const always = (chain: string): Rule[] => [{ matches: [], actions: [{ kind: "jump", chain }] }];

function rejectRules(): Rule[] {
  return [
    { matches: [{ kind: "protocol", protocols: ["TCP"] }], actions: [{ kind: "reject", with: "tcp-reset" }] },
    { matches: [], actions: [{ kind: "reject", with: "port-unreachable" }] },
  ];
}

function firewallRules(): Rule[] {
  const key = [...frontEndKey(false), "saddr" as const];
  return [{ matches: [{ kind: "in", set: SETS.firewallAllow, key, not: true }], actions: [{ kind: "drop" }] }];
}

function preDnatRules(options: RuleOptions): Rule[] {
  const key = frontEndKey(false);
  return [
    { matches: [{ kind: "in", set: SETS.firewallVips, key }], actions: [{ kind: "jump", chain: "firewall" }] },
    { matches: [], actions: [{ kind: "map", map: SETS.noEndpoints, key }] },
    {
      matches: nodePortMatches(options),
      actions: [{ kind: "map", map: SETS.noEndpointsNodePorts, key: frontEndKey(true) }],
    },
  ];
}

function servicesRules(options: RuleOptions): Rule[] {
  const toService: Match = { kind: "in", set: SETS.clusterIps, key: ["daddr"] };
  const fromOutside: Match[] | undefined = options.masqueradeAll
    ? []
    : options.detector === undefined
      ? undefined
      : [{ kind: "pod", detector: options.detector, not: true }];
  return [
    ...(fromOutside === undefined
      ? []
      : [{ matches: [toService, ...fromOutside], actions: [{ kind: "mark" as const }] }]),
    { matches: [], actions: [{ kind: "map", map: SETS.serviceIps, key: frontEndKey(false) }] },
    { matches: nodePortMatches(options), actions: [{ kind: "map", map: SETS.nodePorts, key: frontEndKey(true) }] },
  ];
}

function nodePortMatches({ nodePortAddresses }: RuleOptions): Match[] {
  if (nodePortAddresses === "set") return [{ kind: "in", set: SETS.nodePortIps, key: ["daddr"] }];
  return [{ kind: "local", part: "daddr" }, { kind: "no-loopback" }];
}

function masqueradingRules(): Rule[] {
  const hairpin: Match = { kind: "in", set: SETS.hairpin, key: ["saddr", "daddr", "protocol", "dport"] };
  return [
    { matches: [{ kind: "marked" }], actions: [{ kind: "unmark" }, { kind: "masquerade" }] },
    { matches: [{ kind: "dnat" }, hairpin], actions: [{ kind: "masquerade" }] },
  ];
}

/** A packet that still has a cluster IP as destination after DNAT was for a port that no Service has. */
function clusterIpsRules(): Rule[] {
  return [
    {
      matches: [{ kind: "in", set: SETS.clusterIps, key: ["daddr"] }],
      actions: [{ kind: "goto", chain: REJECT_CHAIN }],
    },
    { matches: [{ kind: "in", set: SETS.serviceCidrs, key: ["daddr"] }], actions: [{ kind: "drop" }] },
  ];
}
