import { Cidr, type IpAddress, type IpFamily } from "#base/ip";
import type { LabNode } from "./lab-node.ts";
import { netnsOf } from "./names.ts";

/** An address on a link, with the length of its network's prefix. */
export interface OnLink {
  readonly address: IpAddress;
  readonly prefixLength: number;
}

/** One uplink of the node, with the provider at its other end. */
export interface UplinkLink {
  /** The name of the node's interface, and of the internet's interface to the provider. */
  readonly name: string;
  readonly cost: number;
  /** The provider's namespace: a router with a DNS server. */
  readonly netns: string;
  /** The node's addresses on this link, one for each family. */
  readonly addresses: readonly OnLink[];
  /** The provider's addresses on this link; its DNS server listens there. */
  readonly gateways: readonly OnLink[];
  /** The link between the provider and the internet: addresses of both ends, in the order of families. */
  readonly transit: { readonly provider: readonly OnLink[]; readonly internet: readonly OnLink[] };
}

/** The small internet to which one node has two uplinks. */
export interface Uplinks {
  readonly node: LabNode;
  readonly links: readonly UplinkLink[];
  readonly internet: { readonly netns: string; readonly addresses: readonly IpAddress[] };
}

/** Prefixes for documentation (RFC 5737, RFC 3849). No address of a lab's cluster is in them. */
const PLACES = [
  {
    name: "wan0",
    cost: 0,
    access: { 4: Cidr.parse("192.0.2.0/24"), 6: Cidr.parse("2001:db8:1::/64") },
    transit: { 4: Cidr.parse("100.64.0.0/24"), 6: Cidr.parse("2001:db8:f0::/64") },
  },
  {
    name: "wan1",
    cost: 10,
    access: { 4: Cidr.parse("198.51.100.0/24"), 6: Cidr.parse("2001:db8:2::/64") },
    transit: { 4: Cidr.parse("100.64.1.0/24"), 6: Cidr.parse("2001:db8:f1::/64") },
  },
] as const;
const SERVER = { 4: Cidr.parse("203.0.113.0/24").at(80), 6: Cidr.parse("2001:db8:80::/64").at(0x80) } as const;
const GATEWAY_OFFSET = 1;
const FAR_OFFSET = 2;
const NODE_OFFSET = 10;

/** Pure: a cheap and an expensive uplink of a node. */
export function planUplinks(lab: string, families: readonly IpFamily[], node: LabNode): Uplinks {
  const onLinks = (networks: Readonly<Record<IpFamily, Cidr>>, offset: number): readonly OnLink[] =>
    families.map((family) => ({
      address: networks[family].at(offset),
      prefixLength: networks[family].prefixLength,
    }));
  return {
    node,
    links: PLACES.map(({ name, cost, access, transit }) => ({
      name,
      cost,
      netns: netnsOf(lab, name),
      addresses: onLinks(access, NODE_OFFSET),
      gateways: onLinks(access, GATEWAY_OFFSET),
      transit: { provider: onLinks(transit, GATEWAY_OFFSET), internet: onLinks(transit, FAR_OFFSET) },
    })),
    internet: { netns: netnsOf(lab, "internet"), addresses: families.map((family) => SERVER[family]) },
  };
}
