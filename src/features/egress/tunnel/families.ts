import { type IpAddress, type IpFamily, MIN_IPV6_MTU_BYTES } from "#base/ip";
import { isKernelError } from "#kernel/errors";
import type { NetStack } from "#kernel/net";
import type { TunnelDriver } from "./driver.ts";

type Addresses = Readonly<Partial<Record<IpFamily, IpAddress>>>;

/** The setting that says whether an interface has IPv6. */
export function ipv6OffKey(ifname: string): string {
  return `net/ipv6/conf/${ifname}/disable_ipv6`;
}

/**
 * Returns true if IPv6 is switched off on an interface. A pod's own settings (`securityContext.sysctls`) come after its ADD: the addresses of its status stay.
 * Throws `KernelError`.
 */
export function isIpv6Off({ sysctl }: Pick<NetStack, "sysctl">, ifname: string): boolean {
  try {
    return sysctl.get(ipv6OffKey(ifname)) === "1";
  } catch (error) {
    if (!isKernelError(error, "not-found")) throw error;
    return false;
  }
}

/** Pure: the addresses of an interface that it can use. */
export function usableAddresses(addresses: Addresses, isOff: boolean): Addresses {
  const { 6: _off, ...others } = addresses;
  return isOff ? others : addresses;
}

/** Pure: whether a tunnel over an interface of this MTU can carry IPv6, and the MTU that it needs, bytes. */
export function fitsIpv6(
  { overhead }: Pick<TunnelDriver, "overhead">,
  mtuBytes: number,
): { readonly fits: boolean; readonly neededBytes: number } {
  const neededBytes = MIN_IPV6_MTU_BYTES + overhead(6);
  return { fits: mtuBytes >= neededBytes, neededBytes };
}
