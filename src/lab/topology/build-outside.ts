import type { Cidr, IpAddress } from "#base/ip";
import type { Kernel, NetStack } from "#kernel/net";
import { openNetNs } from "#kernel/netns";
import { calmLink } from "./calm-link.ts";
import type { Outside } from "./outside.ts";
import type { OnLink } from "./uplinks.ts";

const IFNAME = "eth0";

/**
 * Makes the network outside and joins it to the fabric, which routes. Every address of its sites is its own. Throws `KernelError`;
 * `removeTopology` removes a partial result.
 */
export function buildOutside(kernel: Kernel, fabricName: string, outside: Outside): void {
  using fabricNs = openNetNs({ name: fabricName });
  using fabric = kernel.openStack(fabricNs);
  using netns = kernel.createNetNs(outside.netns);
  using stack = kernel.openStack(netns);
  for (const key of ["net/ipv4/ip_forward", "net/ipv6/conf/all/forwarding"])
    if (fabric.sysctl.get(key) !== undefined) fabric.sysctl.set(key, 1);
  const loopback = indexOf(stack, "lo");
  stack.links.set(loopback, { up: true });
  fabric.links.create({ kind: "veth", name: outside.port, peer: { name: IFNAME, netns } });
  join(fabric, outside.port, outside.transit.fabric);
  join(stack, IFNAME, outside.transit.outside);
  for (const [at, { address: gateway }] of outside.transit.outside.entries()) {
    for (const network of outside.sites.flatMap(({ networks }) => networks[at] ?? [])) {
      fabric.routes.add({ dst: network, gateway });
      const address = siteAddress(network);
      stack.addresses.replace({
        linkIndex: loopback,
        address,
        prefixLength: address.bits,
        noDad: address.family === 6,
      });
    }
  }
}

/** Pure: the address of the host of a site. */
export function siteAddress(network: Cidr): IpAddress {
  return network.at(9);
}

function join(stack: NetStack, name: string, addresses: readonly OnLink[]): void {
  calmLink(stack, name);
  const linkIndex = indexOf(stack, name);
  stack.links.set(linkIndex, { up: true });
  for (const { address, prefixLength } of addresses)
    stack.addresses.replace({ linkIndex, address, prefixLength, noDad: address.family === 6 });
}

function indexOf(stack: NetStack, name: string): number {
  const link = stack.links.get({ name });
  if (link === undefined) throw new Error(`the kernel has no link ${name} that was just made`);
  return link.index;
}
