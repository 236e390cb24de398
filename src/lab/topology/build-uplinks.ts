import { Cidr } from "#base/ip";
import type { Kernel, NetStack } from "#kernel/net";
import { openNetNs } from "#kernel/netns";
import { calmLink } from "./calm-link.ts";
import type { OnLink, UplinkLink, Uplinks } from "./uplinks.ts";

const ANY = { 4: Cidr.parse("0.0.0.0/0"), 6: Cidr.parse("::/0") } as const;
/** The provider's interfaces. */
export const PROVIDER_LINKS = { node: "node", internet: "internet" } as const;

/**
 * Makes the small internet and connects the node to it with new links. The node gets addresses and no route: the program for its
 * uplinks writes routes. Throws `KernelError`; `removeTopology` removes a partial result.
 */
export function buildUplinks(kernel: Kernel, uplinks: Uplinks): void {
  using internetNs = kernel.createNetNs(uplinks.internet.netns);
  using internet = kernel.openStack(internetNs);
  prepare(internet);
  const loopback = indexOf(internet, "lo");
  for (const address of uplinks.internet.addresses) assign(internet, loopback, { address, prefixLength: address.bits });
  using nodeNs = openNetNs({ name: uplinks.node.netns });
  using node = kernel.openStack(nodeNs);
  for (const link of uplinks.links) buildUplink(kernel, { node, internet }, link);
}

function buildUplink(
  kernel: Kernel,
  { node, internet }: { readonly node: NetStack; readonly internet: NetStack },
  link: UplinkLink,
): void {
  using netns = kernel.createNetNs(link.netns);
  using provider = kernel.openStack(netns);
  prepare(provider);
  provider.sysctl.set("net/ipv4/ip_forward", 1);
  const forwarding6 = "net/ipv6/conf/all/forwarding";
  if (provider.sysctl.get(forwarding6) !== undefined) provider.sysctl.set(forwarding6, 1);
  connect(node, provider, netns, { here: link.name, there: PROVIDER_LINKS.node });
  connect(internet, provider, netns, { here: link.name, there: PROVIDER_LINKS.internet });
  for (const one of link.addresses) assign(node, indexOf(node, link.name), one);
  for (const one of link.gateways) assign(provider, indexOf(provider, PROVIDER_LINKS.node), one);
  const { transit } = link;
  for (const one of transit.provider) assign(provider, indexOf(provider, PROVIDER_LINKS.internet), one);
  for (const one of transit.internet) assign(internet, indexOf(internet, link.name), one);
  for (const { address } of transit.internet) provider.routes.add({ dst: ANY[address.family], gateway: address });
  for (const [at, { address: gateway }] of transit.provider.entries()) {
    const access = link.addresses[at];
    if (access === undefined) continue;
    internet.routes.add({ dst: Cidr.of(access.address, access.prefixLength), gateway });
  }
}

function connect(
  here: NetStack,
  far: NetStack,
  netns: ReturnType<Kernel["createNetNs"]>,
  names: { readonly here: string; readonly there: string },
): void {
  here.links.create({ kind: "veth", name: names.here, peer: { name: names.there, netns } });
  for (const [stack, name] of [
    [here, names.here],
    [far, names.there],
  ] as const) {
    calmLink(stack, name);
    const conf = `net/ipv6/conf/${name}`;
    if (stack.sysctl.get(`${conf}/accept_dad`) !== undefined) {
      // No other program sets addresses here. Addresses must return when a link is up again.
      stack.sysctl.set(`${conf}/keep_addr_on_down`, 1);
    }
    stack.links.set(indexOf(stack, name), { up: true });
  }
}

function prepare(stack: NetStack): void {
  stack.links.set(indexOf(stack, "lo"), { up: true });
}

function assign(stack: NetStack, linkIndex: number, { address, prefixLength }: OnLink): void {
  stack.addresses.replace({ linkIndex, address, prefixLength, noDad: address.family === 6 });
}

function indexOf(stack: NetStack, name: string): number {
  const link = stack.links.get({ name });
  if (link === undefined) throw new Error(`the kernel has no link ${name} that was just made`);
  return link.index;
}
