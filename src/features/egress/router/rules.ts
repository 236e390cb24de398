import { createHash } from "node:crypto";
import type { IpFamily } from "#base/ip";
import type { FilterBackend, FilterCounter, FilterKinds, FilterRule, ListedRule } from "../filter/index.ts";
import type { RouterPod } from "./plan.ts";

type Kind = "masquerade" | "invalid";
/** A rule of a router: what leaves gets the router's address, and packets that belong to no connection do not leave. */
export type RouterRule = FilterRule<Kind>;

/** A rule of a router that a packet filter has. */
export type ListedRouterRule = ListedRule<Kind>;

/** The rules of a router in a packet filter. */
export interface RuleBackend {
  /** See {@link FilterBackend.list}. */
  list(): Promise<readonly ListedRouterRule[]>;
  /** See {@link FilterBackend.sync}. */
  sync(wanted: readonly RouterRule[]): Promise<number>;
  /** See {@link FilterBackend.counters}. */
  counters(): Promise<readonly FilterCounter<Kind>[]>;
}

export const MARK = "coil-egress";

/** The tables and chains by Coil's names. */
const KINDS: FilterKinds<Kind> = {
  places: {
    masquerade: {
      table: "nat",
      chain: { nftables: "POSTROUTING", iptables: "POSTROUTING" },
      base: { type: "nat", hook: "postrouting", priority: "srcnat" },
    },
    invalid: {
      table: "filter",
      chain: { nftables: "FORWARD", iptables: "FORWARD" },
      base: { type: "filter", hook: "forward", priority: "filter" },
    },
  },
  isOurs: (comment) => /^coil-egress [0-9a-f]{8}$/.test(comment),
};

/** The rules of a router in this packet filter. */
export function routerRules(filter: FilterBackend): RuleBackend {
  return {
    list: () => filter.list(KINDS),
    sync: (wanted) => filter.sync(KINDS, wanted),
    counters: () => filter.counters(KINDS),
  };
}

/** Pure: the rules of a router (docs/spec/pod-network.md#9). */
export function planRules({ addresses, ifname }: Pick<RouterPod, "addresses" | "ifname">): RouterRule[] {
  return ([4, 6] as const).flatMap((family) => {
    const address = addresses[family];
    if (address === undefined) return [];
    return [
      rule({ family, kind: "masquerade", address: String(address), ifname }),
      rule({ family, kind: "invalid", address: "", ifname }),
    ];
  });
}

function rule(about: {
  readonly family: IpFamily;
  readonly kind: Kind;
  readonly address: string;
  readonly ifname: string;
}): RouterRule {
  const { family, kind, address, ifname } = about;
  const hash = createHash("sha1").update(JSON.stringify(about)).digest("hex").slice(0, 8);
  const own = { family, kind, comment: `${MARK} ${hash}` };
  if (kind === "invalid")
    return {
      ...own,
      nftables: `oifname "${ifname}" ct state invalid counter drop`,
      iptables: ["-o", ifname, "-m", "conntrack", "--ctstate", "INVALID", "-j", "DROP"],
    };
  const host = `${address}/${family === 4 ? 32 : 128}`;
  return {
    ...own,
    nftables: `${family === 4 ? "ip" : "ip6"} saddr != ${address} oifname "${ifname}" counter masquerade`,
    iptables: ["!", "-s", host, "-o", ifname, "-j", "MASQUERADE"],
  };
}
