import { Cidr, type IpAddress, type IpFamily } from "#base/ip";
import type { NftSetSpec } from "#kernel/nft";
import { probePort } from "../probe/index.ts";
import type { FixedPart, GatewayPeer, TunnelDriver, WrappedForm } from "../tunnel/index.ts";
import { addressElement, hexOf, rawElement, wrappedElement } from "./elements.ts";
import type { GuardChain, GuardPlan, GuardRule, GuardSet } from "./plan.ts";
import { type PortRange, portChains, portSets, refuseSpent, settleChain } from "./ports.ts";
import { acceptedDestinations } from "./ranges.ts";

/** The packets that a router takes and sends, as input of {@link planRouterGuard}. */
export interface RouterGuard {
  readonly egress: GatewayPeer["egress"];
  readonly driver: TunnelDriver;
  /** UDP port of the tunnels. */
  readonly port: number;
  /** The interface to the cluster and to the outside. */
  readonly ifname: string;
  /** Addresses of the pods that may use this Egress. */
  readonly clients: readonly IpAddress[];
  /** The destinations of the Egress. Absent: they cannot be read, and every destination is accepted. */
  readonly destinations: readonly Cidr[] | undefined;
  /** Ranges of the cluster and the site, which a wider destination does not open. */
  readonly inCluster: readonly Cidr[];
  /** The share of the source ports that each client has, by its addresses ({@link planShares}). Absent: none has one. */
  readonly shares?: ReadonlyMap<string, number> | undefined;
  /** The source ports of flows that leave. Default: {@link SOURCE_PORTS}. */
  readonly ports?: PortRange | undefined;
}

/** The nftables table of a router. */
export const ROUTER_TABLE = { family: "inet", name: "coil-egress" } as const;

/** The reasons for which a router drops packets, by the label of the metric. */
export const ROUTER_DROPS = {
  "outer-source": "tunnel packets that come from no client",
  translated:
    "tunnel packets with a client's packet inside that come from no client: a node translates the sources of pods' packets, or they are forged",
  "inner-source": "tunnel packets of a client with the packet of somebody else inside, or none that the tunnel carries",
  "plain-tunnel": "packets of IPIP and IPv6 tunnels without UDP",
  fragment: "fragments of UDP over IPv6 that are not put together",
  destination: "packets of a client to no destination of the Egress",
  local: "packets of a client to the router itself, and probes of a client beyond 50 a second",
  probe: "packets to the port of probes that no tunnel brought",
  ports: "new flows of a client whose share of the source ports to their destination has run out",
  unsolicited: "packets to a client that answer none of its own",
  transit: "packets that are not a client's",
} as const satisfies Readonly<Record<string, string>>;

type Reason = keyof typeof ROUTER_DROPS;

/** Destinations that no client sends into a tunnel (docs/spec/pod-network.md#7.2) and no host outside has. */
const NEVER = [
  "169.254.0.0/16",
  "127.0.0.0/8",
  "224.0.0.0/4",
  "255.255.255.255/32",
  "fe80::/10",
  "::1/128",
  "ff00::/8",
].map((text) => Cidr.parse(text));
const ANY = ["0.0.0.0/0", "::/0"].map((text) => Cidr.parse(text));
const FAMILIES: readonly IpFamily[] = [4, 6];
const IP = { 4: "ip", 6: "ip6" } as const;
const ADDRESS = { 4: "ipv4_addr", 6: "ipv6_addr" } as const;
/** The limit of one client's probes is twice what coild sends at most. */
const PROBE_LIMIT = "limit rate 50/second burst 50 packets";
/** Clients whose rate of probes is held: those of the last 10 s. A probe of a client beyond them is dropped. */
const PROBES_SET: NftSetSpec = { key: "", flags: ["dynamic", "timeout"], timeoutSeconds: 10, size: 65_535 };
/** Before the chains of other programs. */
const PRIORITY = "filter - 10";

/**
 * Pure: the table of a router (docs/spec/pod-network.md#9.1). A packet of a tunnel is judged before it is unwrapped, by its outer source and the source
 * inside, and after it by the inner header. The number of rules does not depend on the number of clients.
 */
export function planRouterGuard(guard: RouterGuard): GuardPlan {
  const { ifname, shares = new Map(), ports: range } = guard;
  const ports = { ifname, shares, range };
  return {
    table: ROUTER_TABLE,
    sets: [...setsOf(guard), ...portSets(ports)],
    chains: [...chainsOf(guard), settleChain(ifname, guard.driver.routerLinks), ...portChains(ports)],
  };
}

function setsOf({ driver, egress, clients, destinations, inCluster }: RouterGuard): GuardSet[] {
  return FAMILIES.flatMap((family) => {
    const { fixed, sourceBit } = driver.wrapped(family, egress);
    const inner = innerSource(family, sourceBit);
    const own = [...new Map(clients.map((one) => [String(one), one])).values()].filter((one) => one.family === family);
    // Without the destinations nobody can tell which of them are in the cluster.
    const limits = { inCluster: destinations === undefined ? [] : inCluster, never: NEVER };
    return [
      { name: `clients${family}`, spec: { key: ADDRESS[family] }, elements: own.map(addressElement) },
      { name: `inner${family}`, spec: { key: inner, typeof: true }, elements: own.map(rawElement) },
      {
        name: `wrapped${family}`,
        spec: { key: wrappedKey(family, driver.wrapped(family, egress)), typeof: true },
        elements: own.map((address) => wrappedElement(address, fixed)),
      },
      {
        name: `destinations${family}`,
        spec: { key: ADDRESS[family], flags: ["interval"] },
        elements: { ranges: acceptedDestinations(family, destinations ?? ANY, limits) },
      },
      { name: `probes${family}`, spec: { ...PROBES_SET, key: ADDRESS[family] }, elements: "by-rules" as const },
    ];
  });
}

/** The source of the packet inside, as an expression of nft(8). */
function innerSource(family: IpFamily, bit: number): string {
  return `@th,${bit},${family === 4 ? 32 : 128}`;
}

/** The outer source, the fixed parts and the source inside, as one key: one look in a set judges all of them. */
function wrappedKey(family: IpFamily, { fixed, sourceBit }: WrappedForm): string {
  return [`${IP[family]} saddr`, ...fixed.map(partOf), innerSource(family, sourceBit)].join(" . ");
}

const partOf = ({ bit, value }: FixedPart): string => `@th,${bit},${8 * value.length}`;

function chainsOf({ driver, egress, port, ifname }: RouterGuard): GuardChain[] {
  const tunnel = `udp dport ${port}`;
  const each = (rule: (family: IpFamily) => GuardRule): GuardRule[] => FAMILIES.map(rule);
  const links = driver.routerLinks;
  // The first bytes of the destination of an IPv6 packet inside, of any outer family.
  const innerGroup = `@th,${driver.wrapped(6, egress).sourceBit + 128},16 0xff02`;
  return [
    {
      name: "prerouting",
      base: { type: "filter", hook: "prerouting", priority: "raw", policy: "accept" },
      // Each flow of a client would have an entry of connection tracking for its tunnel besides its own.
      // Only on the way in: what a client sends to this port of a host outside is inside, and has to be tracked.
      rules: each((family) => ({
        rule: `iifname "${ifname}" ${tunnel} ${IP[family]} saddr @clients${family} notrack`,
      })),
    },
    {
      name: "output",
      base: { type: "filter", hook: "output", priority: "raw", policy: "accept" },
      rules: each((family) => ({
        rule: `oifname "${ifname}" ${tunnel} ${IP[family]} daddr @clients${family} notrack`,
      })),
    },
    {
      name: "input",
      base: { type: "filter", hook: "input", priority: PRIORITY, policy: "accept" },
      rules: [
        ...links.map((name) => ({ rule: `iifname "${name}" goto local` })),
        { rule: `${tunnel} goto outer` },
        drop("plain-tunnel", "meta l4proto { 4, 41 }"),
        // The kernel asks for connection tracking because of other rules, so all fragments are put together before. This does not rely on it.
        drop("fragment", "meta nfproto ipv6 meta l4proto udp exthdr frag exists"),
        drop("probe", `udp dport ${probePort(port)}`),
      ],
    },
    {
      name: "outer",
      rules: [
        ...each((family) => ({
          rule: `${wrappedKey(family, driver.wrapped(family, egress))} @wrapped${family} accept`,
        })),
        // The kernel of a client solicits routers and reports groups by each link with IPv6.
        ...each((family) => ({ rule: `${IP[family]} saddr @clients${family} ${innerGroup} drop` })),
        ...each((family) => drop("inner-source", `${IP[family]} saddr @clients${family}`)),
        ...each((family) => {
          const { fixed, sourceBit } = driver.wrapped(family, egress);
          const matches = fixed.map((part) => `${partOf(part)} ${hexOf(part.value)}`);
          return drop("translated", [...matches, innerSource(family, sourceBit), `@inner${family}`].join(" "));
        }),
        drop("outer-source"),
      ],
    },
    {
      name: "local",
      rules: [
        ...each((family) => ({
          rule: `${IP[family]} saddr @clients${family} udp dport ${probePort(port)} update @probes${family} { ${IP[family]} saddr ${PROBE_LIMIT} } accept`,
        })),
        drop("local"),
      ],
    },
    {
      name: "forward",
      base: { type: "filter", hook: "forward", priority: PRIORITY, policy: "accept" },
      rules: [
        ...links.map((name) => ({ rule: `iifname "${name}" goto from-client` })),
        ...links.map((name) => ({ rule: `oifname "${name}" goto to-client` })),
        drop("transit"),
      ],
    },
    {
      name: "from-client",
      rules: [
        ...each(refuseSpent),
        ...each((family) => ({
          rule: `${IP[family]} saddr @clients${family} ${IP[family]} daddr @destinations${family} accept`,
        })),
        ...each((family) => drop("destination", `${IP[family]} saddr @clients${family}`)),
        drop("inner-source"),
      ],
    },
    {
      name: "to-client",
      rules: [
        ...each((family) => ({
          rule: `ct direction reply ct state established ${IP[family]} saddr @destinations${family} ${IP[family]} daddr @clients${family} accept`,
        })),
        { rule: "ct state related meta l4proto icmp ip daddr @clients4 accept" },
        { rule: "ct state related meta l4proto ipv6-icmp ip6 daddr @clients6 accept" },
        drop("unsolicited"),
      ],
    },
  ];
}

function drop(reason: Reason, match = ""): GuardRule {
  return { rule: `${match} counter drop`.trim(), reason };
}
