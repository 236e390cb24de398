import { Cidr, IpAddress, type IpFamily } from "#base/ip";
import type { PlannedRoute, PlannedRule } from "./types.ts";

/** The routing of one NIC, as a claim has it. */
export interface NicRouting {
  /** Addresses with prefix lengths. */
  readonly addresses: readonly string[];
  /** The gateways of its default routes. */
  readonly gateways: Readonly<Record<IpFamily, string | undefined>>;
  /** The routes of its subnets; those to everywhere are in the gateways already. */
  readonly hostRoutes: readonly { readonly dst: string; readonly via: string }[];
  /** The metric of its default routes. */
  readonly metric: number;
  /** True: the default routes of the sandbox are of another network, so this NIC has its own in its table alone. */
  readonly secondary?: boolean | undefined;
}

/** The table of the NIC at index i, and the priority of its rules: this number plus i. The first NIC has one in a secondary network alone. */
export const FIRST_TABLE = 100;
/** Before the main table (32766), so that an answer leaves by the NIC that has its source address. */
export const FIRST_PRIORITY = 20_000;
const EVERYWHERE: Readonly<Record<IpFamily, string>> = { 4: "0.0.0.0/0", 6: "::/0" };

/**
 * Routes and rules of the NIC at an index: default routes by metric and the routes of its subnets in the main table; every NIC but the first
 * also has a table of its own with connected and default routes, for packets from its addresses (docs/spec/vpc-nics.md#8.4). In a secondary network the first
 * one has a table too, and the main table gets no default route: the kernel's metric of IPv6 (1024) would let it win. Pure.
 */
export function planRouting(
  nic: NicRouting,
  index: number,
): { readonly routes: readonly PlannedRoute[]; readonly rules: readonly PlannedRule[] } {
  const prefixes = nic.addresses.map((one) => Cidr.parse(one));
  const through = (dst: string, via: string): PlannedRoute => {
    const gateway = IpAddress.parse(via);
    return { dst, via: String(gateway), ...onLink(prefixes, gateway) };
  };
  const subnetRoutes = nic.hostRoutes
    .filter(({ dst }) => dst !== EVERYWHERE[4] && dst !== EVERYWHERE[6])
    .map(({ dst, via }) => through(dst, via));
  const defaults = ([4, 6] as const).flatMap((family) => {
    const via = nic.gateways[family];
    return via === undefined ? [] : [through(EVERYWHERE[family], via)];
  });
  const isSecondary = nic.secondary === true;
  const main = [...subnetRoutes, ...(isSecondary ? [] : defaults.map((route) => ({ ...route, metric: nic.metric })))];
  if (index === 0 && !isSecondary) return { routes: main, rules: [] };
  const table = FIRST_TABLE + index;
  const connected = distinct(prefixes.map(String)).map((dst): PlannedRoute => ({ dst, table }));
  const own = [...connected, ...[...subnetRoutes, ...defaults].map((route) => ({ ...route, table }))];
  const rules = nic.addresses.map((one) => ({
    from: String(Cidr.host(IpAddress.parse(one.split("/")[0] ?? ""))),
    table,
    priority: FIRST_PRIORITY + index,
  }));
  return { routes: [...main, ...own], rules };
}

function onLink(prefixes: readonly Cidr[], gateway: IpAddress): { readonly onlink?: true } {
  return gateway.isLinkLocal || prefixes.some((prefix) => prefix.contains(gateway)) ? {} : { onlink: true };
}

function distinct(texts: readonly string[]): string[] {
  return [...new Set(texts)];
}
