import type { Logger } from "#base/log";
import { fitsIpv6, isIpv6Off, type RouterPod, type TunnelDriver, usableAddresses } from "#features/egress";
import { KernelError } from "#kernel/errors";
import type { NetStack } from "#kernel/net";

/**
 * Makes the function that returns this pod as it is now: with the MTU of its interface, and without IPv6 where that cannot be, so that clients of IPv4 are
 * served. A change of the latter is logged. The function throws `KernelError`, also if the interface is gone.
 */
export function routerPodReader(
  { stack, log }: { readonly stack: Pick<NetStack, "links" | "sysctl">; readonly log: Logger },
  {
    egress,
    addresses,
    ifname,
    driver,
  }: Pick<RouterPod, "egress" | "addresses" | "ifname"> & { readonly driver: TunnelDriver },
): () => RouterPod {
  let told = "";
  const reasonOf = (mtuBytes: number): string => {
    if (addresses[6] === undefined) return "";
    if (isIpv6Off(stack, ifname)) return `IPv6 is switched off on ${ifname}`;
    const { fits, neededBytes } = fitsIpv6(driver, mtuBytes);
    return fits ? "" : `${ifname} has an MTU of ${mtuBytes} bytes, and tunnels of IPv6 need ${neededBytes}`;
  };
  return () => {
    const mtuBytes = stack.links.get({ name: ifname })?.mtu;
    if (mtuBytes === undefined) throw new KernelError("no-device", `there is no link ${ifname}`);
    const reason = reasonOf(mtuBytes);
    if (reason !== told) {
      told = reason;
      if (reason === "") log.info("clients of IPv6 are served again");
      else log.warn("clients of IPv6 are not served", { reason });
    }
    return { egress, addresses: usableAddresses(addresses, reason !== ""), ifname, mtuBytes };
  };
}
