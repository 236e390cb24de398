import { Cidr } from "#base/ip";
import type { Uplink } from "#base/uplink-model";
import { isKernelError } from "#kernel/errors";
import type { NetStack } from "#kernel/net";
import { canBeSource, type KernelListing } from "../state/index.ts";

type Sysctl = Pick<NetStack["sysctl"], "get">;

/** The value of `rp_filter` for strict checking (Documentation/networking/ip-sysctl.rst). */
const STRICT = 1;

/** Problems of this host for the operator, as sentences; the same problem has the same text. Throws {@link KernelError}. */
export function warningsOf(sysctl: Sysctl, uplinks: readonly Uplink[], listing: KernelListing): readonly string[] {
  return [
    ...uplinks
      .filter((uplink) => lacksRule(uplink, listing) && isStrict(sysctl, uplink.ifName))
      .map(
        ({ name, ifName }) =>
          `uplink ${name}: ${ifName} has strict rp_filter, and its address has no rule, so answers are dropped: ` +
          `enable routing.manage, or set net.ipv4.conf.${ifName}.rp_filter to 2`,
      ),
    ...sharedAddresses(uplinks),
  ];
}

/** Without the rule of its address, the kernel's reverse path check does not find the uplink (docs/spec/uplink-proxy.md#3.2). */
function lacksRule({ addresses }: Uplink, { rules }: KernelListing): boolean {
  return addresses
    .filter(({ address, isUsable }) => isUsable && address.family === 4)
    .some(({ address }) => !rules.some(({ from }) => from?.equals(Cidr.host(address)) === true));
}

/** The kernel uses the higher value of the two; 2 is loose checking. */
function isStrict(sysctl: Sysctl, ifName: string): boolean {
  try {
    const of = (name: string): number => Number(sysctl.get(`net/ipv4/conf/${name}/rp_filter`));
    return Math.max(of("all"), of(ifName)) === STRICT;
  } catch (error) {
    if (isKernelError(error, "not-found")) return false; // the interface does not exist
    throw error;
  }
}

/** An address on two uplinks: the first one keeps it (docs/spec/uplink-proxy.md#2.2). */
function sharedAddresses(uplinks: readonly Uplink[]): string[] {
  const owners = new Map<string, string>();
  return uplinks.flatMap(({ name, addresses }) =>
    addresses.flatMap(({ address }) => {
      if (!canBeSource(address)) return [];
      const owner = owners.get(address.toString());
      if (owner === undefined) owners.set(address.toString(), name);
      return owner === undefined || owner === name
        ? []
        : [
            `uplink ${name}: its address ${address} is also the address of uplink ${owner}, which keeps it; use different addresses`,
          ];
    }),
  );
}
