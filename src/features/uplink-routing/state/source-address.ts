import { Cidr, type IpAddress } from "#base/ip";
import type { Address } from "#kernel/address";

const MULTICAST = [Cidr.parse("224.0.0.0/4"), Cidr.parse("ff00::/8")];

/** Pure: whether connections to other networks may have this source address (docs/spec/uplink-proxy.md#6.1). */
export function canBeSource(address: IpAddress): boolean {
  const special = address.isLinkLocal || address.isLoopback || address.isUnspecified;
  return !special && !MULTICAST.some((prefix) => prefix.contains(address));
}

/** Pure: whether an address of a link can be a source now; also checks the kernel's flags of the address. */
export function isUsableSource(own: Address): boolean {
  return canBeSource(own.address) && !own.tentative && !own.dadFailed && own.deprecated !== true;
}
