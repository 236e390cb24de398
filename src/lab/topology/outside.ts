import { Cidr, type IpFamily } from "#base/ip";
import { netnsOf } from "./names.ts";
import type { OnLink } from "./uplinks.ts";

/** A prefix outside the cluster, with one host that has an address of it. */
export interface OutsideSite {
  readonly name: "both" | "pair" | "later";
  /** One prefix for each family. */
  readonly networks: readonly Cidr[];
}

/** A network outside the cluster. It has no route to pods; the lab gives it routes to the routers of Egresses alone. */
export interface Outside {
  readonly netns: string;
  /** The fabric's interface to it. Its own one is `eth0`. */
  readonly port: string;
  /** The link between them: addresses of both ends, in the order of families. */
  readonly transit: { readonly fabric: readonly OnLink[]; readonly outside: readonly OnLink[] };
  readonly sites: readonly OutsideSite[];
}

/** Prefixes for measurements and documentation (RFC 2544, RFC 3849). No address of a lab's cluster is in them. */
const SITES = [
  { name: "both", 4: Cidr.parse("198.18.1.0/24"), 6: Cidr.parse("2001:db8:e1::/64") },
  { name: "pair", 4: Cidr.parse("198.18.2.0/24"), 6: Cidr.parse("2001:db8:e2::/64") },
  { name: "later", 4: Cidr.parse("198.18.3.0/24"), 6: Cidr.parse("2001:db8:e3::/64") },
] as const;
const TRANSIT = { 4: Cidr.parse("100.64.2.0/24"), 6: Cidr.parse("2001:db8:f2::/64") } as const;
const FABRIC_OFFSET = 1;
const OUTSIDE_OFFSET = 2;

/** Pure: the network outside of a lab. */
export function planOutside(lab: string, families: readonly IpFamily[]): Outside {
  const onLinks = (offset: number): readonly OnLink[] =>
    families.map((family) => ({ address: TRANSIT[family].at(offset), prefixLength: TRANSIT[family].prefixLength }));
  return {
    netns: netnsOf(lab, "outside"),
    port: "outside",
    transit: { fabric: onLinks(FABRIC_OFFSET), outside: onLinks(OUTSIDE_OFFSET) },
    sites: SITES.map((site) => ({ name: site.name, networks: families.map((family) => site[family]) })),
  };
}
