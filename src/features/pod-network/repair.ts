import { Cidr, type IpAddress } from "#base/ip";
import type { Address } from "#kernel/address";
import type { Link } from "#kernel/link";
import type { NetStack } from "#kernel/net";
import type { Route } from "#kernel/route";
import { addAddresses, addHostRoute } from "./apply.ts";
import { isOurMake } from "./listing.ts";
import { linkLocalOf, type NodeAddresses, type PlannedAddress, type PodNetworkOptions } from "./plan.ts";

/** A route or address that an attachment lacks on the host, as plain data. */
export type RepairStep =
  | { readonly kind: "route"; readonly link: Link; readonly dst: Cidr }
  | { readonly kind: "address"; readonly link: Link; readonly address: PlannedAddress };

/** An attachment's link and the addresses that its pod has. */
export interface WantedLink {
  readonly link: Link;
  readonly addresses: readonly IpAddress[];
}

/**
 * Pure: finds the missing objects of links that are up: routes, and the host's own IPv6 addresses on them. These addresses are the pods'
 * gateways, and the kernel removes them when a link is set down. A link that is down is not changed. An address that is routed to another
 * link is not changed. A link of an IPv4 pod without any IPv4 address gets `gateway4`, if that is known; a link with an IPv4 address keeps
 * it, because the pod's own routes use it.
 */
export function planRepair(
  wanted: readonly WantedLink[],
  actual: { readonly routes: readonly Route[]; readonly addresses: readonly Address[] },
  node: NodeAddresses,
  gateway4?: IpAddress,
): RepairStep[] {
  const routed = new Set(actual.routes.map(({ dst }) => String(dst)));
  const present = new Set(actual.addresses.map(({ linkIndex, address }) => `${linkIndex} ${address}`));
  const withIpv4 = new Set(
    actual.addresses.flatMap(({ linkIndex, address }) => (address.family === 4 ? linkIndex : [])),
  );
  return wanted
    .filter(({ link }) => link.up)
    .flatMap(({ link, addresses }): RepairStep[] => [
      ...ownIpv6(link, addresses, node)
        .filter(({ address }) => !present.has(`${link.index} ${address}`))
        .map((address) => ({ kind: "address" as const, link, address })),
      ...(withIpv4.has(link.index) ? [] : ownIpv4(link, addresses, gateway4)).map((address) => ({
        kind: "address" as const,
        link,
        address,
      })),
      ...addresses
        .map((address) => Cidr.host(address))
        .filter((dst) => !routed.has(String(dst)))
        .map((dst) => ({ kind: "route" as const, link, dst })),
    ]);
}

/** Writes one step. Throws `KernelError` and {@link PodNetworkError}. */
export function applyRepair(
  host: NetStack,
  step: RepairStep,
  options: Pick<PodNetworkOptions, "tableId" | "protocolId">,
): void {
  if (step.kind === "route") addHostRoute(host, step.link.index, step.dst, options);
  else addAddresses(host, step.link.index, [step.address]);
}

/** Links of other programs may have no IPv4 address, for example with proxy ARP. */
function ownIpv4(link: Link, addresses: readonly IpAddress[], gateway4: IpAddress | undefined): PlannedAddress[] {
  if (gateway4 === undefined || !isOurMake(link) || !addresses.some(({ family }) => family === 4)) return [];
  return [{ address: gateway4, prefixLength: 32, scope: "global" }];
}

/** On links of other programs the kernel makes the link-local address itself. */
function ownIpv6(link: Link, addresses: readonly IpAddress[], node: NodeAddresses): PlannedAddress[] {
  if (!isOurMake(link) || link.mac === undefined || !addresses.some(({ family }) => family === 6)) return [];
  return [
    { address: linkLocalOf(link.mac), prefixLength: 64, scope: "link" },
    ...(node.ipv6 === undefined ? [] : [{ address: node.ipv6, prefixLength: 128, scope: "global" as const }]),
  ];
}
