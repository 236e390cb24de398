import { Cidr, IpAddress } from "#base/ip";
import type { PortDraft } from "#cloud/neutron";
import type { PortRequest, VpcSubnet } from "../provider.ts";

/** Ports with a wanted MAC in one request, so that one that is taken hurts few. */
const MAX_CHOSEN = 8;

/**
 * Which ports are made by one request, at most `size`. Neutron chooses all addresses of a request before it makes the first port, and if one
 * cannot be had it refuses the request and keeps the others allocated for ever (`create_port_bulk` of Neutron 21). So a port with a wanted
 * address, and one of a network that is in `alone`, is a request by itself. Pure.
 */
export function batches(
  drafts: readonly PortDraft[],
  size: number,
  alone: ReadonlySet<string> = new Set(),
): readonly (readonly PortDraft[])[] {
  const kinds = Map.groupBy(drafts, (draft) => kindOf(draft, alone));
  return [
    ...chunks(kinds.get("plain") ?? [], size),
    ...chunks(kinds.get("mac") ?? [], Math.min(MAX_CHOSEN, size)),
    ...chunks(kinds.get("alone") ?? [], 1),
  ];
}

function kindOf(draft: PortDraft, alone: ReadonlySet<string>): "plain" | "mac" | "alone" {
  const { fixed_ips: ips = [], mac_address: mac, network_id: network } = draft;
  if (alone.has(network) || ips.some(({ ip_address: ip }) => ip !== undefined)) return "alone";
  return mac === undefined ? "plain" : "mac";
}

/**
 * The number of addresses for ports in the smallest subnet of IPv4; infinity without a subnet of IPv4. Pure. Throws
 * `IpParseError` for a subnet that is none.
 */
export function addressesOf(subnets: readonly Pick<VpcSubnet, "cidr" | "ipVersion" | "pools">[]): number {
  const sizes = subnets.filter(({ ipVersion }) => ipVersion === 4).map(sizeOf);
  return Math.min(Number.POSITIVE_INFINITY, ...sizes);
}

function sizeOf({ cidr, pools = [] }: Pick<VpcSubnet, "cidr" | "pools">): number {
  // Without the network's own, the broadcast address and the gateway.
  if (pools.length === 0) return Math.max(0, 2 ** (32 - Cidr.parse(cidr).prefixLength) - 3);
  return pools.reduce(
    (sum, { start, end }) => sum + Number(IpAddress.parse(end).value - IpAddress.parse(start).value) + 1,
    0,
  );
}

function chunks<Item>(items: readonly Item[], size: number): readonly (readonly Item[])[] {
  const count = Math.ceil(items.length / size);
  return Array.from({ length: count }, (_, at) => items.slice(at * size, (at + 1) * size));
}

/**
 * The networks with a subnet of which each port gets an address by its MAC. Neutron chooses the MACs of a list of ports only after their addresses, and so
 * answers such a list with status 500 (`create_port_bulk` of Neutron 21).
 */
export function automaticNetworks(requests: readonly PortRequest[]): ReadonlySet<string> {
  const subnets = requests.flatMap(({ vpc }) => vpc.subnets.filter(({ isAutomatic }) => isAutomatic === true));
  return new Set(subnets.map(({ networkId }) => networkId));
}
