import type { IpFamily } from "#base/ip";
import type { Address } from "#kernel/address";
import type { Link } from "#kernel/link";
import type { NetStack } from "#kernel/net";
import type { Route } from "#kernel/route";
import { familiesOf, type Rule } from "#kernel/rule";

/** Links, addresses, routes and rules of one namespace, all families, listed at one time. Plans and snapshots are computed from it. */
export interface KernelListing {
  /** The families that the kernel has: it refuses routes and rules of another. */
  readonly families: readonly IpFamily[];
  readonly links: readonly Link[];
  readonly addresses: readonly Address[];
  /** Routes of all tables except the local table. */
  readonly routes: readonly Route[];
  readonly rules: readonly Rule[];
}

/** RT_TABLE_MAIN and RT_TABLE_LOCAL. */
export const TABLE_MAIN = 254;
export const TABLE_LOCAL = 255;

/** Lists the kernel's state. Throws {@link KernelError}. Takes about 100 µs, and 1 µs for each route. */
export function readKernel(stack: Pick<NetStack, "links" | "addresses" | "routes" | "rules">): KernelListing {
  const families = familiesOf(stack.rules);
  return {
    families,
    links: stack.links.list(),
    addresses: stack.addresses.list(),
    routes: families.flatMap((family) => stack.routes.list({ family }).filter(({ table }) => table !== TABLE_LOCAL)),
    rules: families.flatMap((family) => stack.rules.list(family)),
  };
}

/** The link of an uplink with its addresses. */
export interface UplinkLink {
  readonly link?: Link;
  /** The addresses of the link, in the kernel's order. */
  readonly addresses: readonly Address[];
}

/** Pure: the link of an uplink, and its addresses; `link` is absent if no link has that name. */
export function linkOf({ links, addresses }: KernelListing, ifName: string): UplinkLink {
  const link = links.find(({ name }) => name === ifName);
  return link === undefined
    ? { addresses: [] }
    : { link, addresses: addresses.filter(({ linkIndex }) => linkIndex === link.index) };
}
