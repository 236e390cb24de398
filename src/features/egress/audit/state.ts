import type { Cidr, IpAddress } from "#base/ip";
import type { OriginMark, Uplink } from "../client/index.ts";
import type { ObservedNet } from "../net-plan/index.ts";
import type { SourceFlows } from "../router/flows.ts";
import type { ListedRouterRule } from "../router/index.ts";
import type { TunnelDriver } from "../tunnel/index.ts";

/** A pod's network namespace. */
export interface SpaceId {
  readonly path: string;
  /** The pod, if the kernel tells it: behind another plugin. */
  readonly podUid?: string | undefined;
  /** The addresses that the pod was given; empty behind another plugin. */
  readonly addresses: readonly IpAddress[];
}

/** The state of a router's packet filter and connection tracking. */
export interface RouterState {
  readonly rules: readonly ListedRouterRule[];
  /** The flows of addresses that have no return route. */
  readonly flows: readonly SourceFlows[];
}

/** A network namespace that has something of a NAT client or of a router. */
export interface PodSpace extends SpaceId {
  readonly ifname: string;
  /** MTU of that interface, bytes; absent if there is no such interface. */
  readonly mtuBytes?: number | undefined;
  readonly net: ObservedNet;
  /** The interfaces by which connections may come in. */
  readonly uplinks: readonly Uplink[];
  /** Marks in the packet filter that `coild` uses; absent without the rule that shows that there may be some. */
  readonly marks?: readonly OriginMark[] | undefined;
  /** Absent in a namespace that has no router's rule or link. */
  readonly router?: RouterState | undefined;
  /** The parts that could not be read, as sentences. */
  readonly unread: readonly string[];
}

/** The settings by which `coild` makes clients. */
export interface ClientSettings {
  /** Absent: the kernel lacks what was asked for. */
  readonly driver?: TunnelDriver["name"] | undefined;
  /** The reason why there is no driver. */
  readonly fault: string;
  /** UDP port of the tunnels. */
  readonly port: number;
  readonly inCluster: readonly Cidr[];
  /** The default for an Egress that does not set it. */
  readonly originatingOnly: boolean;
  /** Clients whose tunnel goes to the own address of a router, because another router of the Egress is dead. Absent: a `coild` of before, which has none. */
  readonly redirects?: readonly ClientRedirect[] | undefined;
}

/** A client that a router serves past the Service of the Egress. */
export interface ClientRedirect {
  /** The UID of the client's pod. */
  readonly uid: string;
  /** The Egress, as `namespace/name`. */
  readonly egress: string;
  /** The UID of the router's pod. */
  readonly router: string;
}

/** The pods of a node as its `coild` tells them. */
export interface EgressNode {
  readonly node: string;
  /** Absent with `--enable-egress=false`. */
  readonly clients?: ClientSettings | undefined;
  readonly spaces: readonly PodSpace[];
  /** Namespaces that have nothing of a client or of a router. */
  readonly clean: readonly SpaceId[];
  /** Namespaces that could not be read, and why. */
  readonly failed: readonly (SpaceId & { readonly why: string })[];
}
