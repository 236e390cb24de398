import { Cidr, type IpAddress } from "#base/ip";
import type { Address } from "#kernel/address";

const MULTICAST = [Cidr.parse("224.0.0.0/4"), Cidr.parse("ff00::/8")];

/** Pure: an address that connections to other networks may start from (docs/spec/uplink-proxy.md#6.1). */
export function canBeSource(address: IpAddress): boolean {
  const special = address.isLinkLocal || address.isLoopback || address.isUnspecified;
  return !special && !MULTICAST.some((prefix) => prefix.contains(address));
}

/** Pure: the same of an address that is on a link, with what the kernel knows of it. */
export function isUsableSource(own: Address): boolean {
  return canBeSource(own.address) && !own.tentative && !own.dadFailed && own.deprecated !== true;
}
