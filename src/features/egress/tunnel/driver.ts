import type { IpAddress, IpFamily } from "#base/ip";
import type { FouPortEntry } from "#kernel/fou";
import type { RouteEncap } from "#kernel/route";
import type { PlannedLink } from "../net-plan/index.ts";

/** One end of a tunnel. */
export interface TunnelEnd {
  /** The address of this end: the client's or the router's own. */
  readonly local: IpAddress;
  /** MTU of the interface that carries the tunnel's packets, bytes. */
  readonly mtuBytes: number;
}

/** The far end as a client sees it: the Service of one Egress. */
export interface GatewayPeer {
  /** The ClusterIP. */
  readonly address: IpAddress;
  readonly egress: { readonly namespace: string; readonly name: string };
  /** True if the kernel chooses the UDP source port for each flow. */
  readonly sourcePortAuto: boolean;
}

/** The way in which a route sends packets into a tunnel. */
export interface TunnelWay {
  readonly link: string;
  readonly gateway?: IpAddress;
  readonly onlink?: boolean;
  readonly encap?: RouteEncap;
  /** MTU of packets that take this route, in bytes. Absent: the MTU of the link. */
  readonly mtu?: number;
}

/** The kernel objects of a tunnel in one namespace. Links of one name of several tunnels are equal, and are one link. */
export interface TunnelParts {
  /** Without those of {@link TunnelBase}. */
  readonly links: readonly PlannedLink[];
  readonly way: TunnelWay;
}

/** The kernel objects that a namespace needs once for a family, whatever the number of tunnels. */
export interface TunnelBase {
  readonly settings: ReadonlyMap<string, string>;
  readonly fouPorts: readonly FouPortEntry[];
  /** A link of this name of the other family is the same link: it has the neighbours of both, and the larger MTU. */
  readonly links: readonly PlannedLink[];
}

/** A part of a packet that has one value in all packets of a tunnel. */
export interface FixedPart {
  /** Its offset, in bits from the start of the UDP header. */
  readonly bit: number;
  readonly value: Uint8Array;
}

/** The form of a tunnel packet, behind its outer IP header. */
export interface WrappedForm {
  /** The parts that say that an IP packet of the family is inside, and where it begins. */
  readonly fixed: readonly FixedPart[];
  /** The offset of the source address of the packet inside, in bits from the start of the UDP header. */
  readonly sourceBit: number;
}

/**
 * A way to carry packets between client and router, as pure functions (docs/spec/pod-network.md#10). The namespace's IPv4 and IPv6 tunnels are
 * independent.
 */
export interface TunnelDriver {
  readonly name: "fou" | "vxlan";
  /** Bytes that a packet grows by: the tunnel's MTU is smaller by so much. */
  readonly overhead: (family: IpFamily) => number;
  /** The names of the links from which a router takes clients' packets, as nft(8) matches them. */
  readonly routerLinks: readonly string[];
  /** Returns the form that packets of the tunnels of an Egress have on the wire. */
  readonly wrapped: (family: IpFamily, egress: GatewayPeer["egress"]) => WrappedForm;
  /** Returns the payload of the UDP packet in which a client's tunnel to the Egress carries an IP packet of the family. */
  readonly wrap: (family: IpFamily, egress: GatewayPeer["egress"], packet: Uint8Array) => Buffer;
  readonly clientBase: (family: IpFamily, port: number) => TunnelBase;
  readonly routerBase: (end: TunnelEnd, port: number) => TunnelBase;
  /** The client's end of the tunnel to an Egress. */
  readonly toGateway: (end: TunnelEnd, peer: GatewayPeer, port: number) => TunnelParts;
  /** The router's end of the tunnel to a client. */
  readonly toClient: (
    end: TunnelEnd,
    client: IpAddress,
    peer: Omit<GatewayPeer, "address">,
    port: number,
  ) => TunnelParts;
}
