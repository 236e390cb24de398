import { IpAddress, type MacAddress } from "#base/ip";
import type { Address } from "#kernel/address";
import type { FouPortEntry } from "#kernel/fou";
import type { Link, LinkDetails } from "#kernel/link";
import type { Neighbour } from "#kernel/neighbour";
import type { NextHop, Route } from "#kernel/route";
import type { Rule } from "#kernel/rule";

/** A link in the fake: mutable, copied into a {@link Link} when read. */
export interface FakeLink {
  index: number;
  name: string;
  readonly kind: string | undefined;
  mac: MacAddress;
  mtu: number;
  up: boolean;
  arp: boolean;
  alias: string;
  group: number;
  masterIndex: number | undefined;
  promiscuous: boolean;
  /** Offloads that were turned off. */
  readonly disabled: Set<string>;
  readonly details: LinkDetails | undefined;
  /** The namespace that the link is in. */
  home: FakeNamespace;
  /** A veth's other end, or a macvlan's lower device. */
  peer: FakeLink | undefined;
}

/** IFF_* bits. */
const IFF = {
  UP: 1,
  BROADCAST: 2,
  LOOPBACK: 8,
  RUNNING: 0x40,
  NOARP: 0x80,
  PROMISC: 0x100,
  MULTICAST: 0x1000,
  LOWER_UP: 0x10000,
} as const;

/** The state of one namespace in the fake kernel. */
export class FakeNamespace {
  readonly inode: bigint;
  readonly links = new Map<number, FakeLink>();
  addresses: Address[] = [];
  neighbours: Neighbour[] = [];
  routes: Route[] = [];
  rules: Rule[] = [...defaultRules()];
  fouPorts: FouPortEntry[] = [];
  readonly sysctls = new Map<string, string>();
  readonly ids = new Map<FakeNamespace, number>();
  /** The number of handles, stacks and processes that keep the namespace alive; the fake kernel counts its name separately. */
  references = 0;
  #nextIndex = 1;

  constructor(inode: bigint) {
    this.inode = inode;
  }

  /** The next free index, ascending as in the kernel. */
  takeIndex(): number {
    const index = this.#nextIndex;
    this.#nextIndex += 1;
    return index;
  }

  linkNamed(name: string): FakeLink | undefined {
    for (const link of this.links.values()) if (link.name === name) return link;
    return undefined;
  }

  /** The id by which this namespace knows `other`, assigned at the first need, as in the kernel. */
  idOf(other: FakeNamespace): number {
    const known = this.ids.get(other);
    if (known !== undefined) return known;
    const taken = new Set(this.ids.values());
    let id = 0;
    while (taken.has(id)) id += 1;
    this.ids.set(other, id);
    return id;
  }

  /** The link as the kernel would report it. */
  view(link: FakeLink): Link {
    const carrier = link.up && (link.kind !== "veth" || link.peer?.up === true);
    const { peer } = link;
    return {
      index: link.index,
      name: link.name,
      ...(link.kind === undefined ? {} : { kind: link.kind }),
      mac: link.mac,
      mtu: link.mtu,
      up: link.up,
      operState:
        link.kind === undefined ? (link.up ? "unknown" : "down") : carrier ? "up" : link.up ? "lowerlayerdown" : "down",
      ...(link.alias === "" ? {} : { alias: link.alias }),
      ...(peer === undefined ? {} : { peerIndex: peer.index }),
      ...(peer === undefined || peer.home === this ? {} : { peerNetNsId: this.idOf(peer.home) }),
      ...(link.masterIndex === undefined ? {} : { masterIndex: link.masterIndex }),
      flags: flagsOf(link, carrier),
      group: link.group,
      ...(link.details === undefined ? {} : { details: link.details }),
    };
  }

  /** True when the address is one of this host's. */
  isLocal(address: IpAddress): boolean {
    return this.addresses.some((own) => own.address.equals(address));
  }

  /** True when `address` is on the link of a direct route. */
  isOnLink(address: IpAddress, linkIndex: number | undefined): boolean {
    return this.routes.some(
      (route) =>
        route.type === "unicast" &&
        route.gateway === undefined &&
        route.multipath === undefined &&
        route.linkIndex !== undefined &&
        (linkIndex === undefined || route.linkIndex === linkIndex) &&
        route.dst.contains(address),
    );
  }

  /** Removes every route over the link; a multipath route is removed with its last hop. */
  dropRoutes(linkIndex: number, { keepLocal4 = false } = {}): void {
    this.routes = this.routes.flatMap((route): Route[] => {
      if (keepLocal4 && route.type === "local" && route.family === 4) return [route];
      if (route.multipath === undefined) return route.linkIndex === linkIndex ? [] : [route];
      const hops = route.multipath.filter((hop) => hop.linkIndex !== linkIndex);
      return hops.length === 0 ? [] : [withHops(route, hops)];
    });
  }
}

/** The kernel reports a multipath route with one remaining hop as a plain route. */
function withHops(route: Route, hops: readonly NextHop[]): Route {
  const [only] = hops;
  if (hops.length > 1 || only === undefined) return { ...route, multipath: hops };
  const { multipath: _gone, ...plain } = route;
  const { weight: _weight, ...hop } = only;
  return { ...plain, ...hop };
}

function flagsOf(link: FakeLink, carrier: boolean): number {
  let flags = link.kind === undefined ? IFF.LOOPBACK : IFF.BROADCAST | IFF.MULTICAST;
  if (link.up) flags |= IFF.UP;
  if (carrier) flags |= IFF.RUNNING | IFF.LOWER_UP;
  if (!link.arp) flags |= IFF.NOARP;
  if (link.promiscuous) flags |= IFF.PROMISC;
  return flags;
}

function* defaultRules(): Generator<Rule> {
  for (const family of [4, 6] as const) {
    yield { family, priority: 0, table: 255, action: "lookup", protocol: 2 };
    yield { family, priority: 32766, table: 254, action: "lookup", protocol: 2 };
    if (family === 4) yield { family, priority: 32767, table: 253, action: "lookup", protocol: 2 };
  }
}

/** fe80::/64 with the modified EUI-64 of the MAC (RFC 4291 appendix A). */
export function linkLocalOf(mac: MacAddress): IpAddress {
  const [a = 0, b = 0, c = 0, d = 0, e = 0, f = 0] = mac.toBytes();
  return IpAddress.fromBytes(Uint8Array.of(0xfe, 0x80, 0, 0, 0, 0, 0, 0, a ^ 2, b, c, 0xff, 0xfe, d, e, f));
}
