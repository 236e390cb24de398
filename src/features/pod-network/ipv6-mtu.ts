import { type IpAddress, MIN_IPV6_MTU_BYTES } from "#base/ip";

/** Pure: the addresses that a link of this MTU, in bytes, can have: the kernel has no IPv6 on a link below 1280. An unknown MTU carries all. */
export function carriedAddresses(addresses: readonly IpAddress[], mtuBytes: number | undefined): readonly IpAddress[] {
  return carriesIpv6(mtuBytes) ? addresses : addresses.filter(({ family }) => family === 4);
}

/** Pure: whether a link of this MTU, in bytes, can have IPv6. */
export function carriesIpv6(mtuBytes: number | undefined): boolean {
  return mtuBytes === undefined || mtuBytes >= MIN_IPV6_MTU_BYTES;
}

/** Pure: why pods with this MTU, in bytes, get no IPv6 addresses, and what helps. `uplink` is the link that the MTU is of; without one it is a setting. */
export function ipv6MtuText(mtuBytes: number, uplink: string | undefined): string {
  const least = `IPv6 needs at least ${MIN_IPV6_MTU_BYTES} (RFC 8200)`;
  if (uplink === undefined)
    return `the MTU of pods is set to ${mtuBytes} bytes, and ${least}: raise --mtu of coild, or mtu in the CNI configuration`;
  return `uplink ${uplink} has an MTU of ${mtuBytes} bytes, which pods get, and ${least}: raise the MTU of ${uplink}, or set --mtu of coild to ${MIN_IPV6_MTU_BYTES}`;
}
