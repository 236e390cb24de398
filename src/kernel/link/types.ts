import type { AbortOptions } from "#base/async";
import type { IpAddress, MacAddress } from "#base/ip";
import type { KernelError } from "#kernel/errors";
import type { NetNs } from "#kernel/netns";

/** A network interface as the kernel reports it. */
export interface Link {
  /** The interface index, unique in its namespace. */
  readonly index: number;
  /** At most 15 bytes. */
  readonly name: string;
  /** `veth`, `bridge`, …; absent for loopback and physical devices. */
  readonly kind?: string;
  readonly mac?: MacAddress;
  /** Bytes. */
  readonly mtu: number;
  /** Administratively up (IFF_UP). */
  readonly up: boolean;
  readonly operState: OperState;
  /** At most 255 bytes. */
  readonly alias?: string;
  /** IFLA_LINK: for a veth the peer's index, in the peer's namespace; for a macvlan the lower device. */
  readonly peerIndex?: number;
  /** IFLA_LINK_NETNSID: this namespace's id for the namespace that `peerIndex` is in; absent if that is this namespace. */
  readonly peerNetNsId?: number;
  /** The bridge or bond that the link is a port of. */
  readonly masterIndex?: number;
  /** IFF_* bits. */
  readonly flags: number;
  /** IFLA_GROUP: 0 unless another one was set. */
  readonly group: number;
  /** Kind-specific settings, for the kinds that this module knows. */
  readonly details?: LinkDetails;
}

/** RFC 2863 operational states, by the names that iproute2 prints, in lower case. */
export type OperState = "unknown" | "notpresent" | "down" | "lowerlayerdown" | "testing" | "dormant" | "up";

/** The kind-specific settings as the kernel reports them. */
export type LinkDetails =
  | ({ readonly kind: "bridge" } & BridgeOptions)
  | ({ readonly kind: "vxlan" } & VxlanOptions)
  | ({ readonly kind: "tun" } & TunOptions)
  | ({ readonly kind: "macvlan" } & MacvlanOptions)
  | ({ readonly kind: "ipip" } & TunnelOptions)
  | ({ readonly kind: "ip6tnl" } & TunnelOptions);

export interface BridgeOptions {
  /** Spanning tree. Default off. */
  readonly stp?: boolean | undefined;
  /** Default off. */
  readonly vlanFiltering?: boolean | undefined;
  /** Default on. */
  readonly multicastSnooping?: boolean | undefined;
  /** Seconds before an unused address is forgotten; with 0 the bridge sends every frame to all ports. Default 300. */
  readonly ageingSeconds?: number | undefined;
}

export interface VxlanOptions {
  /** 0 to 2^24-1. With `external` leave it out. */
  readonly vni?: number | undefined;
  readonly local?: IpAddress | undefined;
  /** The target of frames for unknown destinations: one host or a multicast group. */
  readonly remote?: IpAddress | undefined;
  /** UDP destination port; the kernel's default is 8472, IANA's 4789. */
  readonly port?: number | undefined;
  /** The device that `remote` is reached by. */
  readonly underlayIndex?: number | undefined;
  /** True if the link learns the addresses of senders. Default true. */
  readonly learning?: boolean | undefined;
  /** Tunnel parameters come with each packet, from a route's encap (collect_md). */
  readonly external?: boolean | undefined;
  readonly ttl?: number | undefined;
  /** Send UDP checksums over IPv4. */
  readonly udpCsum?: boolean | undefined;
  readonly udp6ZeroCsumTx?: boolean | undefined;
  /** Accept zero UDP checksums over IPv6. */
  readonly udp6ZeroCsumRx?: boolean | undefined;
  /** Group-based policy extension. It can only be switched on. */
  readonly gbp?: boolean | undefined;
}

export interface TunOptions {
  /** Ethernet frames (`tap`) or IP packets (`tun`). */
  readonly mode: "tun" | "tap";
  readonly multiQueue?: boolean | undefined;
  readonly vnetHeader?: boolean | undefined;
  /** The user who may attach to the device without CAP_NET_ADMIN. Default: no user. */
  readonly ownerUid?: number | undefined;
}

export interface MacvlanOptions {
  readonly mode: "private" | "vepa" | "bridge" | "passthru" | "source";
}

/** ipip (both ends IPv4) and ip6tnl (both ends IPv6). */
export interface TunnelOptions {
  readonly local?: IpAddress | undefined;
  readonly remote?: IpAddress | undefined;
  readonly underlayIndex?: number | undefined;
  /** 0: inherit. */
  readonly ttl?: number | undefined;
  /** Path MTU discovery; ipip only. Default true. */
  readonly pmtuDiscovery?: boolean | undefined;
  /** The inner protocol; default IPv4 for ipip, IPv6 for ip6tnl. */
  readonly payload?: "ipv4" | "ipv6" | "any" | undefined;
  /** Tunnel parameters come with each packet (collect_md). */
  readonly external?: boolean | undefined;
  readonly encap?: TunnelEncap | undefined;
}

export interface TunnelEncap {
  readonly type: "fou" | "gue";
  /** The UDP source port; with 0 the kernel takes it from the flow's hash. */
  readonly sourcePort: number;
  readonly destinationPort: number;
  readonly csum?: boolean | undefined;
  readonly csum6?: boolean | undefined;
}

/** Options of every kind. */
export interface CommonLinkSpec {
  /** 1 to 15 bytes, no `/`, no white space. */
  readonly name: string;
  readonly mtu?: number | undefined;
  readonly mac?: MacAddress | undefined;
  /** The alias, which is set right after the link is made; if this fails, the link is deleted again. */
  readonly alias?: string | undefined;
  readonly up?: boolean | undefined;
  readonly masterIndex?: number | undefined;
  /** Make the link in this namespace instead of the port's. Not for `tun`. */
  readonly netns?: NetNs | undefined;
}

/** The other end of a veth. */
export interface VethPeerSpec {
  readonly name: string;
  readonly netns?: NetNs | undefined;
  readonly mtu?: number | undefined;
  readonly mac?: MacAddress | undefined;
  readonly up?: boolean | undefined;
}

/** A link to make. */
export type LinkSpec = CommonLinkSpec &
  (
    | { readonly kind: "veth"; readonly peer: VethPeerSpec }
    | ({ readonly kind: "bridge" } & BridgeOptions)
    | ({ readonly kind: "vxlan" } & VxlanOptions)
    | ({ readonly kind: "tun" } & TunOptions)
    | ({ readonly kind: "macvlan"; readonly parentIndex: number } & MacvlanOptions)
    | { readonly kind: "dummy" }
    | ({ readonly kind: "ipip" } & TunnelOptions)
    | ({ readonly kind: "ip6tnl" } & TunnelOptions)
  );

/** The kinds that {@link LinkPort.create} makes. */
export type LinkKind = LinkSpec["kind"];

/** Identifies one link, by name or by index. */
export type LinkRef = { readonly name: string } | { readonly index: number };

/** The fields of a link that {@link LinkPort.deleteMany} needs; any {@link Link} has them. */
export type DeletableLink = Pick<Link, "index" | "kind">;

/** Changes of a link; absent fields are not changed. */
export interface LinkChange {
  readonly name?: string | undefined;
  readonly mtu?: number | undefined;
  readonly mac?: MacAddress | undefined;
  /** The new alias; the empty string removes the alias. */
  readonly alias?: string | undefined;
  readonly up?: boolean | undefined;
  /** `null` removes the link from its bridge. */
  readonly masterIndex?: number | null | undefined;
  /** Take every frame, also those for other MAC addresses (IFF_PROMISC). A bridge sets it for its ports by itself, without this flag. */
  readonly promiscuous?: boolean | undefined;
  /** Answer ARP on the link; default true. */
  readonly arp?: boolean | undefined;
  /** IFLA_GROUP, 0 to 2^31-1. The groups that `deleteMany` uses are refused as `invalid`. */
  readonly group?: number | undefined;
  /** Moves the link to this namespace. Its index may change; its addresses and routes are lost. */
  readonly netns?: NetNs | undefined;
}

/** The links of one namespace. Every method throws {@link KernelError}; each takes some 10 µs unless more is stated. */
export interface LinkPort {
  /** All links, by index. */
  list(): Link[];
  /** `undefined` when there is no such link. */
  get(ref: LinkRef): Link | undefined;
  /**
   * Makes a link and reads it back (from `spec.netns` when given). Throws `already-exists` for a taken name,
   * `unsupported` when the kernel lacks the kind, `invalid` if it refuses an option.
   */
  create(spec: LinkSpec): Link;
  /** Throws `no-device` when there is no such link. */
  set(index: number, change: LinkChange): void;
  /** Blocks the thread for 10 to 20 ms while the kernel waits for readers. Throws `no-device` when there is no such link. */
  delete(index: number): void;
  /** Like {@link LinkPort.delete}, on another thread. The signal has an effect until the request is sent. */
  deleteAsync(index: number, options?: AbortOptions): Promise<void>;
  /**
   * Deletes up to 128 links on another thread, in little more time than the deletion of one link takes, because they share the wait. If one
   * link cannot be deleted, the others are deleted all the same. Resolves to the failures by index, empty if all are deleted: `no-device`
   * if a link did not exist, `unsupported` for a link without a kind. Rejects if it is not known whether any link was deleted: with
   * `invalid` for more links, else with the kernel's error; then delete them one by one. The signal has an effect until the requests are
   * sent.
   *
   * The kernel's networking lock is held for some 0.25 ms for each link, and every other change of a link waits for it: choose the number
   * of links accordingly.
   */
  deleteMany(links: readonly DeletableLink[], options?: AbortOptions): Promise<ReadonlyMap<number, KernelError>>;
}

/** The ids of other namespaces in this namespace, as in {@link Link.peerNetNsId}. */
export interface NetnsIdPort {
  /** `undefined` when `ns` has no id here yet. */
  get(ns: NetNs): number | undefined;
  /** Gives `ns` an id; -1 lets the kernel choose. Throws `already-exists` if it has an id, or the id is taken. */
  set(ns: NetNs, id: number): void;
}
