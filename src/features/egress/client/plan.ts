import { Cidr, type IpAddress, type IpFamily } from "#base/ip";
import type { UsedBy } from "../access/index.ts";
import {
  EGRESS_PROTOCOL,
  type NetPlan,
  type NetScope,
  type ObservedRoute,
  type PlannedLink,
  type PlannedRoute,
  type PlannedRule,
} from "../net-plan/index.ts";
import { fitsIpv6, type GatewayPeer, type TunnelDriver, vniOf } from "../tunnel/index.ts";
import { isOriginRule, planOrigin, type Uplink } from "./origin.ts";

/** One Egress that a pod uses, for one family. */
export interface Gateway extends GatewayPeer {
  /** Says whether an annotation of the pod or a selector of the Egress leads here. Absent: an annotation. */
  readonly by?: UsedBy;
  /** The destinations, all of the family of {@link GatewayPeer.address}. */
  readonly destinations: readonly Cidr[];
  /** True if answers of connections that came in by another interface leave by it (docs/spec/pod-network.md#7.3). */
  readonly originatingOnly: boolean;
}

/** The pod as a client. */
export interface ClientPod {
  readonly addresses: Readonly<Partial<Record<IpFamily, IpAddress>>>;
  /** The interface that carries the tunnels. */
  readonly ifname: string;
  readonly mtuBytes: number;
  /** Needed if a gateway is `originatingOnly`. */
  readonly uplinks?: readonly Uplink[];
  /** Destinations of Egresses that the pod cannot use now: they are unreachable. Absent: none. */
  readonly closed?: ClosedDestinations;
}

/** Destinations without a tunnel, by how the pod comes to their Egress. */
export type ClosedDestinations = Readonly<Record<UsedBy, readonly Cidr[]>>;

/** Something of the gateways that the plan leaves out. */
export interface ClientSkip {
  readonly egress: GatewayPeer["egress"];
  readonly why: "no-address-of-family" | "same-destination" | "same-vni" | "mtu-too-small";
  /** For `same-destination`: the destination, and the Egress that has it. */
  readonly destination?: Cidr;
  readonly other?: GatewayPeer["egress"];
}

export interface ClientOptions {
  readonly driver: TunnelDriver;
  /** UDP port of the tunnels. */
  readonly port: number;
  /** Ranges of the cluster and the site, which a wider destination does not capture. */
  readonly inCluster: readonly Cidr[];
}

/** Table of destinations inside the private ranges. */
export const NARROW_TABLE = 117;
/** Table of all other destinations. */
export const WIDE_TABLE = 118;
const MAIN_TABLE = 254;
/** Priorities of the rules. */
export const FIRST_RULE = 1800;
export const LAST_RULE = 2100;
/** The packets of the tunnels themselves; a destination that is a gateway's address has the same prefix. */
const OUTSIDE_METRIC = 1;
const WAY_METRIC = 1024;
/**
 * A destination whose tunnel is not there is unreachable; its packets never leave without NAT. The metric says how the pod comes to the Egress: after a restart nothing else
 * does, and a pod whose Egress does not select it any more stays closed.
 */
const GUARD_METRICS: Readonly<Record<UsedBy, number>> = { annotation: 1_000_000, selector: 1_000_001 };
const USED_BY: readonly UsedBy[] = ["annotation", "selector"];
const LINK_LOCAL = { 4: Cidr.parse("169.254.0.0/16"), 6: Cidr.parse("fe80::/10") } as const;

/** The private ranges of IPv4 (RFC 1918) and IPv6 (RFC 4193). */
export const PRIVATE_RANGES: readonly Cidr[] = ["10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "fc00::/7"].map(
  (text) => Cidr.parse(text),
);

/** Pure: how the pod comes to the Egress whose destination a route of ours keeps unreachable; `undefined` for any other route. */
export function guardOf({
  table,
  type,
  protocol,
  metric,
}: Pick<ObservedRoute, "table" | "type" | "protocol" | "metric">): UsedBy | undefined {
  if (type !== "unreachable" || protocol !== EGRESS_PROTOCOL || (table !== NARROW_TABLE && table !== WIDE_TABLE))
    return undefined;
  return USED_BY.find((by) => metric === GUARD_METRICS[by]);
}

/** Pure: of routes, the destinations that a client keeps unreachable while their tunnel is missing. */
export function guardedDestinations(
  routes: readonly Pick<ObservedRoute, "dst" | "table" | "type" | "protocol" | "metric">[],
): ClosedDestinations {
  const of = (by: UsedBy): Cidr[] => routes.filter((route) => guardOf(route) === by).map(({ dst }) => dst);
  return { annotation: of("annotation"), selector: of("selector") };
}

/** The kernel objects of a NAT client in the network namespace of its pod. */
export function clientScope(port: number): NetScope {
  return {
    tables: new Set([NARROW_TABLE, WIDE_TABLE]),
    isOurRule: (rule) => (rule.priority >= FIRST_RULE && rule.priority <= LAST_RULE) || isOriginRule(rule),
    isOurLink: (name) => /^(fou[46]_[0-9a-f]{8}|nat_[0-9a-f]{8}|coil_ipip[46])$/.test(name),
    port,
    families: [4, 6],
  };
}

/**
 * Pure: everything that a pod needs in its namespace to reach its Egresses, and what of the gateways is left out
 * (docs/spec/pod-network.md#7.1 and #7.2). Without a gateway of a family the plan has nothing of that family.
 */
export function planClient(
  pod: ClientPod,
  gateways: readonly Gateway[],
  options: ClientOptions,
): { readonly plan: NetPlan; readonly skipped: readonly ClientSkip[] } {
  const skipped: ClientSkip[] = [];
  const parts = ([4, 6] as const).map((family) => planFamily(pod, family, gateways, options, skipped));
  const present = parts.filter((part) => part !== undefined);
  const plan: NetPlan = {
    settings: new Map(present.flatMap(({ settings }) => [...settings])),
    fouPorts: present.flatMap(({ fouPorts }) => fouPorts),
    links: present.flatMap(({ links }) => links),
    rules: present.flatMap(({ rules }) => rules),
    routes: present.flatMap(({ routes }) => routes),
  };
  return { plan, skipped };
}

/** Returns an omitted destination as a sentence. */
export function skipText({ egress, why, destination, other }: ClientSkip): string {
  const [name, rival] = [egress, other].map((one) => `${one?.namespace}/${one?.name}`);
  switch (why) {
    case "no-address-of-family":
      return `Egress ${name}: the pod has no address of this family, or it is switched off there; destinations of it are left out`;
    case "mtu-too-small":
      return `Egress ${name}: its destinations of IPv6 are unreachable, because the MTU of the pod's interface is too small for IPv6 in a tunnel: it must be at least 1350 with --tunnel-driver=vxlan, 1336 with fou`;
    case "same-destination":
      return `Egress ${name}: destination ${destination} is left out, because Egress ${rival} has it too and is first by name`;
    case "same-vni":
      return `Egress ${name} has the same tunnel identifier as Egress ${rival}: a pod cannot use both with --tunnel-driver=vxlan; rename one of them`;
  }
}

/** Those that the pod names go before those that select it; among equals the first by name (docs/spec/pod-network.md#7.5). */
const byRank = (a: Gateway, b: Gateway): number => {
  const rank = ({ by }: Gateway): number => (by === "selector" ? 1 : 0);
  const [one, other] = [a, b].map(({ egress }) => `${egress.namespace}/${egress.name}`) as [string, string];
  return rank(a) - rank(b) || (one < other ? -1 : one > other ? 1 : 0);
};

function planFamily(
  pod: ClientPod,
  family: IpFamily,
  all: readonly Gateway[],
  { driver, port, inCluster }: ClientOptions,
  skipped: ClientSkip[],
): NetPlan | undefined {
  const local = pod.addresses[family];
  const gateways = all.filter(({ address }) => address.family === family).toSorted(byRank);
  if (local === undefined)
    skipped.push(...gateways.map(({ egress }) => ({ egress, why: "no-address-of-family" as const })));
  const ranges = inCluster.filter(
    (range, at) => range.family === family && inCluster.findIndex((other) => other.equals(range)) === at,
  );
  // Without a tunnel the guards stay, so that nothing leaves without NAT.
  const fits = local !== undefined && (family === 4 || fitsIpv6(driver, pod.mtuBytes).fits);
  const links = new Map<string, PlannedLink>();
  const routes: PlannedRoute[] = [];
  const used: IpAddress[] = [];
  const owners = new Map<string, { readonly dst: Cidr; readonly gateway: Gateway }>();
  const vnis = new Map<number, Gateway>();
  const tableOf = (dst: Cidr): number => (ranges.some((range) => range.contains(dst.base)) ? NARROW_TABLE : WIDE_TABLE);
  const closed = new Set<string>();
  const close = (by: UsedBy): void => {
    for (const dst of pod.closed?.[by] ?? []) {
      if (dst.family !== family || owners.has(String(dst)) || closed.has(String(dst))) continue;
      closed.add(String(dst));
      routes.push({ dst, table: tableOf(dst), type: "unreachable", metric: GUARD_METRICS[by] });
    }
  };
  let isNamedClosed = false;
  for (const gateway of gateways) {
    if (local === undefined) break;
    const { egress, by = "annotation" } = gateway;
    // A pod's annotation goes before a selector, also where its Egress is closed.
    if (by === "selector" && !isNamedClosed) {
      isNamedClosed = true;
      close("annotation");
    }
    const sameVni = driver.name === "vxlan" ? vnis.get(vniOf(egress)) : undefined;
    if (sameVni !== undefined) {
      skipped.push({ egress, why: "same-vni", other: sameVni.egress });
      continue;
    }
    vnis.set(vniOf(egress), gateway);
    const tunnel = driver.toGateway({ local, mtuBytes: pod.mtuBytes }, gateway, port);
    if (!fits && gateway.destinations.length > 0) skipped.push({ egress, why: "mtu-too-small" });
    for (const dst of gateway.destinations) {
      if (closed.has(String(dst))) continue;
      const owner = owners.get(String(dst))?.gateway;
      if (owner !== undefined) {
        if (owner !== gateway) skipped.push({ egress, why: "same-destination", destination: dst, other: owner.egress });
        continue;
      }
      owners.set(String(dst), { dst, gateway });
      const table = tableOf(dst);
      if (fits) routes.push({ dst, table, type: "unicast", metric: WAY_METRIC, src: local, ...tunnel.way });
      routes.push({ dst, table, type: "unreachable", metric: GUARD_METRICS[by] });
    }
    if (!routes.some(({ link }) => link === tunnel.way.link)) continue;
    used.push(gateway.address);
    for (const link of tunnel.links) links.set(link.spec.name, link);
  }
  close("annotation");
  close("selector");
  if (owners.size + closed.size === 0) return undefined;
  const none = { settings: new Map<string, string>(), fouPorts: [], links: [] };
  const base = fits && owners.size > 0 ? driver.clientBase(family, port) : none;
  const of = (only: boolean): Cidr[] =>
    [...owners.values()].flatMap(({ dst, gateway }) => (gateway.originatingOnly === only ? [dst] : []));
  const origin = planOrigin(family, pod.uplinks ?? [], { direct: of(true), through: of(false) });
  return {
    settings: new Map([...settingsOf(family, pod.ifname), ...base.settings]),
    fouPorts: base.fouPorts,
    links: [...base.links, ...links.values()],
    rules: [...origin.rules, ...rulesOf(family, ranges)],
    routes: [...used.flatMap(outsideOfTunnels), ...routes, ...origin.routes],
  };
}

/** The packets of the tunnels themselves go past the tables, even if the address of a gateway is inside a destination. */
function outsideOfTunnels(gateway: IpAddress): PlannedRoute[] {
  return [NARROW_TABLE, WIDE_TABLE].map((table) => ({
    dst: Cidr.host(gateway),
    table,
    type: "throw" as const,
    metric: OUTSIDE_METRIC,
  }));
}

/**
 * Packets of tunnels come from routers, to which another route may lead than the one by which they came; with FoU also what was in the tunnels comes
 * in by another link. So the kernel must not check their reverse path. The effective rp_filter of a link is the larger one of `all` and its own.
 */
function settingsOf(family: IpFamily, ifname: string): [string, string][] {
  if (family === 6) return [];
  return [
    ["net.ipv4.conf.default.rp_filter", "0"],
    ["net.ipv4.conf.all.rp_filter", "0"],
    [`net/ipv4/conf/${ifname}/rp_filter`, "0"],
  ];
}

function rulesOf(family: IpFamily, ranges: readonly Cidr[]): PlannedRule[] {
  return [
    { family, priority: 1800, to: LINK_LOCAL[family], table: MAIN_TABLE },
    { family, priority: 1900, table: NARROW_TABLE },
    // With more ranges than priorities up to 2100, the last ones share the last priority.
    ...ranges.map((to, at) => ({ family, priority: Math.min(2000 + at, 2099), to, table: MAIN_TABLE })),
    { family, priority: 2100, table: WIDE_TABLE },
  ];
}
