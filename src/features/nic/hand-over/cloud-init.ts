import { Cidr, IpAddress } from "#base/ip";
import type { NicStatus } from "#kube/nic";
import { NicError } from "../errors.ts";
import { defaultNic, gatewaysOf, isDefaultRoute, routeMetric } from "../status/default-nic.ts";

/** One interface of cloud-init's network configuration, version 2. */
export interface CloudInitEthernet {
  readonly match: { readonly macaddress: string };
  readonly "set-name": string;
  readonly mtu?: number;
  readonly dhcp4: false;
  readonly dhcp6: false;
  readonly addresses: readonly string[];
  readonly routes?: readonly CloudInitRoute[];
  readonly nameservers?: { readonly addresses?: readonly string[]; readonly search?: readonly string[] };
}

interface CloudInitRoute {
  readonly to: string;
  readonly via: string;
  readonly metric?: number;
  /** The gateway is on no subnet of the interface. */
  readonly "on-link"?: true;
}

/** Network configuration of a guest, version 2. */
export interface CloudInitNetwork {
  readonly version: 2;
  readonly ethernets: Readonly<Record<string, CloudInitEthernet>>;
}

/**
 * Returns the network configuration with which cloud-init of a guest brings up all NICs (docs/spec/vpc-nics.md#10): addresses, routes, MTU and name servers by MAC.
 * `defaultRoute` is the name of the NIC that the user has chosen. Pure. Throws {@link NicError} `not-ready` while a NIC has no MAC or address.
 */
export function cloudInitNetwork(
  nics: readonly NicStatus[],
  { defaultRoute }: { readonly defaultRoute?: string | undefined } = {},
): CloudInitNetwork {
  const first = defaultNic(nics, defaultRoute);
  const ethernets = nics.map((nic, at): [string, CloudInitEthernet] => {
    const { name, mac, ips = [], mtu, dns } = nic;
    if (mac === undefined || ips.length === 0) {
      const lacks = mac === undefined ? "MAC" : "address";
      throw new NicError(
        "not-ready",
        `NIC ${name} has no ${lacks} yet: it is ${nic.state}${nic.reason === undefined ? "" : ` (${nic.reason})`}`,
      );
    }
    const routes = routesOf(nic, routeMetric(nics, at, first));
    const nameservers = {
      ...((dns?.nameservers?.length ?? 0) === 0 ? {} : { addresses: dns?.nameservers ?? [] }),
      ...((dns?.search?.length ?? 0) === 0 ? {} : { search: dns?.search ?? [] }),
    };
    return [
      name,
      {
        match: { macaddress: mac },
        "set-name": name,
        ...(mtu === undefined ? {} : { mtu }),
        dhcp4: false,
        dhcp6: false,
        addresses: ips.map(({ ip, prefixLength }) => `${ip}/${prefixLength}`),
        ...(routes.length === 0 ? {} : { routes }),
        ...(Object.keys(nameservers).length === 0 ? {} : { nameservers }),
      },
    ];
  });
  return { version: 2, ethernets: Object.fromEntries(ethernets) };
}

/** The default routes, then those of the subnets. `default` as destination is unknown to older versions of cloud-init. */
function routesOf(nic: NicStatus, metric: number): CloudInitRoute[] {
  const gateways = gatewaysOf(nic);
  const routes: CloudInitRoute[] = [];
  for (const [to, via] of [
    ["0.0.0.0/0", gateways[4]],
    ["::/0", gateways[6]],
  ] as const) {
    if (via !== undefined) routes.push({ to, via, metric, ...onLink(nic, via) });
  }
  for (const { dst, via } of nic.routes ?? []) {
    if (!isDefaultRoute(dst)) routes.push({ to: dst, via, ...onLink(nic, via) });
  }
  return routes;
}

function onLink({ ips = [] }: NicStatus, via: string): { readonly "on-link"?: true } {
  const gateway = IpAddress.tryParse(via);
  const isNear =
    gateway === undefined ||
    gateway.isLinkLocal ||
    ips.some(({ ip, prefixLength }) => Cidr.tryParse(`${ip}/${prefixLength}`)?.contains(gateway) === true);
  return isNear ? {} : { "on-link": true };
}
