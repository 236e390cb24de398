import { Cidr, IpAddress } from "#base/ip";
import type { Address } from "#kernel/address";
import type { Route } from "#kernel/route";
import { type FakeLink, type FakeNamespace, linkLocalOf } from "./namespace.ts";

const TABLE_MAIN = 254;
const TABLE_LOCAL = 255;
const PROTOCOL_KERNEL = 2;
/** include/uapi/linux/if_addr.h: scopes of loopback and of link-local addresses. */
const [IFAPROT_KERNEL_LO, IFAPROT_KERNEL_LL] = [1, 3];

/** The kernel's own reaction to `ip link set up`: connected routes, and an IPv6 link-local address. */
export function bringUp(ns: FakeNamespace, link: FakeLink): void {
  if (link.up) return;
  link.up = true;
  for (const address of ns.addresses) if (address.linkIndex === link.index) addKernelRoutes(ns, address);
  if (!ipv6Enabled(ns, link.name)) return;
  const loopback = link.kind === undefined;
  putAddress(ns, {
    linkIndex: link.index,
    address: loopback ? IpAddress.parse("::1") : linkLocalOf(link.mac),
    prefixLength: loopback ? 128 : 64,
    scope: loopback ? "host" : "link",
    noDad: false,
    tentative: !loopback && dadEnabled(ns, link.name),
    dadFailed: false,
    permanent: true,
    secondary: false,
    protocol: loopback ? IFAPROT_KERNEL_LO : IFAPROT_KERNEL_LL,
  });
  if (loopback && !ns.addresses.some(({ linkIndex, address }) => linkIndex === link.index && address.family === 4)) {
    putAddress(ns, {
      linkIndex: link.index,
      address: IpAddress.parse("127.0.0.1"),
      prefixLength: 8,
      scope: "host",
      noDad: false,
      tentative: false,
      dadFailed: false,
      permanent: true,
      secondary: false,
    });
  }
}

/** The kernel's own reaction to `ip link set down`: routes and IPv6 addresses are removed, IPv4 addresses stay. */
export function bringDown(ns: FakeNamespace, link: FakeLink): void {
  if (!link.up) return;
  link.up = false;
  ns.dropRoutes(link.index, { keepLocal4: true });
  ns.addresses = ns.addresses.filter(({ linkIndex, address }) => linkIndex !== link.index || address.family === 4);
  ns.neighbours = ns.neighbours.filter(({ linkIndex, proxy }) => linkIndex !== link.index || proxy);
}

/** Stores an address; if its link is up, adds the kernel's routes for it. */
export function putAddress(
  ns: FakeNamespace,
  address: Address,
  options: { readonly prefixRoute?: boolean } = {},
): void {
  ns.addresses.push(address);
  const up = ns.links.get(address.linkIndex)?.up === true;
  addKernelRoutes(ns, address, { ...options, only: up ? undefined : "local4" });
}

/** Removes an address and its kernel routes, unless another address needs them. */
export function removeAddress(ns: FakeNamespace, address: Address): void {
  ns.addresses = ns.addresses.filter((other) => other !== address);
  const needed = ns.addresses.flatMap((other) => kernelRoutes(other, true));
  const gone = kernelRoutes(address, true);
  ns.routes = ns.routes.filter(
    (route) => !gone.some((one) => sameKernelRoute(one, route)) || needed.some((one) => sameKernelRoute(one, route)),
  );
}

/** An IPv4 address is local as soon as it is set; the other routes are added when the link is up. */
function addKernelRoutes(
  ns: FakeNamespace,
  address: Address,
  { prefixRoute = true, only }: { readonly prefixRoute?: boolean; readonly only?: "local4" | undefined } = {},
): void {
  for (const route of kernelRoutes(address, prefixRoute)) {
    if (only === "local4" && (route.type !== "local" || route.family !== 4)) continue;
    if (!ns.routes.some((known) => sameKernelRoute(known, route))) ns.routes.push(route);
  }
}

/** The local route and the connected prefix. Broadcast and multicast routes are left out of the fake. */
function kernelRoutes(own: Address, prefixRoute: boolean): Route[] {
  const { address, linkIndex, prefixLength } = own;
  const { family } = address;
  const common = { family, protocol: PROTOCOL_KERNEL, linkIndex } as const;
  const local: Route = {
    ...common,
    dst: Cidr.host(address),
    table: TABLE_LOCAL,
    type: "local",
    ...(family === 4 ? { scope: "host", src: address } : { scope: "global", metric: 0 }),
  };
  const loopback = family === 4 && address.isLoopback;
  const dst = own.peer === undefined ? Cidr.of(address, prefixLength) : Cidr.of(own.peer, prefixLength);
  const connected = prefixRoute && !loopback && (family === 6 || prefixLength < 32 || own.peer !== undefined);
  if (!connected) return [local];
  const prefix: Route = {
    ...common,
    dst,
    table: TABLE_MAIN,
    type: "unicast",
    ...(family === 4 ? { scope: "link", src: address } : { scope: "global", metric: 256 }),
  };
  return [local, prefix];
}

function sameKernelRoute(a: Route, b: Route): boolean {
  return (
    b.protocol === PROTOCOL_KERNEL &&
    a.table === b.table &&
    a.type === b.type &&
    a.linkIndex === b.linkIndex &&
    a.dst.equals(b.dst) &&
    (a.type !== "local" || a.src === b.src || (a.src !== undefined && b.src?.equals(a.src) === true))
  );
}

/** Returns true if `disable_ipv6` is set for the link or for all links. */
export function ipv6Enabled(ns: FakeNamespace, name: string): boolean {
  return ["all", name].every((key) => ns.sysctls.get(`net/ipv6/conf/${key}/disable_ipv6`) !== "1");
}

/** Returns true if `accept_dad` is set for the link. */
export function dadEnabled(ns: FakeNamespace, name: string): boolean {
  return ns.sysctls.get(`net/ipv6/conf/${name}/accept_dad`) !== "0";
}
