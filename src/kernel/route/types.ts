import type { Cidr, IpAddress, IpFamily } from "#base/ip";

/** RT_SCOPE_*: the distance of the destination. */
export type RouteScope = "global" | "site" | "link" | "host" | "nowhere" | number;

/** The action for a packet that the route matches. */
export type RouteType =
  | "unicast"
  | "local"
  | "broadcast"
  | "anycast"
  | "multicast"
  | "blackhole"
  | "unreachable"
  | "prohibit"
  | "throw";

/** One next hop of a route. */
export interface NextHop {
  readonly linkIndex?: number;
  /** The gateway, which may be of the other family (RTA_VIA). */
  readonly gateway?: IpAddress;
  /** The gateway is on the link although no prefix covers it. */
  readonly onlink?: boolean;
  /** 1 to 256. */
  readonly weight: number;
  readonly encap?: RouteEncap;
}

/** Lightweight-tunnel parameters: each packet carries them to the `external` device of the route. */
export interface RouteEncap {
  readonly type: "ip" | "ip6";
  /** VNI or tunnel key. */
  readonly id?: bigint;
  readonly src?: IpAddress;
  readonly dst?: IpAddress;
  /** TTL or hop limit; 0 lets the device choose. */
  readonly ttl?: number;
  /** TUNNEL_* bits in host order: 0x0004 is the key, 0x0001 checksums. */
  readonly flags?: number;
}

/** A route as the kernel reports it. */
export interface Route {
  readonly family: IpFamily;
  /** 0.0.0.0/0 or ::/0 is the default route. */
  readonly dst: Cidr;
  /** 254 is main, 255 local. */
  readonly table: number;
  /** The origin: 2 kernel, 3 boot, 4 static, else a program's number. */
  readonly protocol: number;
  readonly scope: RouteScope;
  readonly type: RouteType;
  readonly linkIndex?: number;
  readonly gateway?: IpAddress;
  /** The source address that local programs get. */
  readonly src?: IpAddress;
  readonly onlink?: boolean;
  /** The metric; the route with the lowest metric is used. Absent: 0 in IPv4; IPv6 reports 1024. */
  readonly metric?: number;
  /** Bytes. */
  readonly mtu?: number;
  /** Two or more next hops; `linkIndex` and `gateway` are absent then. */
  readonly multipath?: readonly NextHop[];
  readonly encap?: RouteEncap;
  /** IPv6 router preference and IPv4 dead/linkdown marks are not reported; `linkDown` when the device has no carrier. */
  readonly linkDown?: boolean;
}

/** A route to add. Defaults: table 254 (main), protocol 3 (boot, as iproute2), type unicast, scope by type and gateway. */
export interface RouteSpec {
  readonly dst: Cidr;
  readonly table?: number | undefined;
  readonly protocol?: number | undefined;
  readonly scope?: RouteScope | undefined;
  readonly type?: RouteType | undefined;
  readonly linkIndex?: number | undefined;
  readonly gateway?: IpAddress | undefined;
  readonly src?: IpAddress | undefined;
  readonly onlink?: boolean | undefined;
  readonly metric?: number | undefined;
  readonly mtu?: number | undefined;
  readonly multipath?: readonly NextHop[] | undefined;
  readonly encap?: RouteEncap | undefined;
}

/** The route to delete: the first route that has all given values. */
export interface RouteKey {
  readonly dst: Cidr;
  readonly table?: number | undefined;
  readonly protocol?: number | undefined;
  readonly type?: RouteType | undefined;
  readonly linkIndex?: number | undefined;
  readonly gateway?: IpAddress | undefined;
  readonly metric?: number | undefined;
}

export interface RouteFilter {
  readonly family: IpFamily;
  readonly table?: number | undefined;
  readonly protocol?: number | undefined;
  readonly linkIndex?: number | undefined;
}

/** A packet that the namespace itself sends. */
export interface RouteQuery {
  readonly destination: IpAddress;
  /** Absent: not chosen yet, as for a program that connects. */
  readonly source?: IpAddress | undefined;
  /** The packet's mark; 0 unless given. */
  readonly mark?: number | undefined;
}

/** The routes of one namespace. Every method throws {@link KernelError} and takes some 20 µs, a list takes 1 µs for each route. */
export interface RoutePort {
  /** Every route that matches; cached exceptions and clones are left out. */
  list(filter: RouteFilter): Route[];
  /**
   * Throws `already-exists` if a route with the same table, dst and metric exists, `unreachable` for a gateway that no link reaches,
   * `no-device`, `invalid`.
   */
  add(spec: RouteSpec): void;
  /** Adds a route, and replaces the one with the same table, dst and metric. */
  replace(spec: RouteSpec): void;
  /** Throws `not-found` when no route matches. */
  delete(key: RouteKey): void;
  /**
   * Asks the kernel for the route of a packet: the entry of a table to which its rules lead. Throws `unreachable` if there is none, or it is an
   * `unreachable` one, `not-permitted` for `prohibit`, `invalid` for `blackhole`.
   */
  lookup(query: RouteQuery): Route;
}
