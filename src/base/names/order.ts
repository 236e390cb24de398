import type { IpAddress } from "#base/ip";

type Kind = "IPv4" | "global" | "unique-local" | "link-local" | "loopback";

function kindOf(address: IpAddress): Kind {
  if (address.isLoopback) return "loopback";
  if (address.family === 4) return "IPv4";
  if (address.isLinkLocal) return "link-local";
  return (address.toBytes()[0] ?? 0) >> 1 === 0xfc >> 1 ? "unique-local" : "global";
}

/**
 * The order in which a name's addresses are tried: first the addresses of a family and scope that this host has too, IPv6 before IPv4 (the
 * labels and precedences of RFC 6724); otherwise their order stays.
 */
export function inOrder(addresses: readonly IpAddress[], own: readonly IpAddress[]): readonly IpAddress[] {
  const kinds = new Set(own.map(kindOf));
  const rank = (address: IpAddress): number => (kinds.has(kindOf(address)) ? 0 : 2) + (address.family === 6 ? 0 : 1);
  return addresses.toSorted((a, b) => rank(a) - rank(b));
}
