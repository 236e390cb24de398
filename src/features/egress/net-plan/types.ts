import type { Cidr, IpAddress, IpFamily, MacAddress } from "#base/ip";
import type { FouPortEntry } from "#kernel/fou";
import type { LinkSpec } from "#kernel/link";
import type { RouteEncap, RouteSpec, RouteType } from "#kernel/route";
import type { RuleSpec } from "#kernel/rule";

/** The protocol number of our routes and rules in the namespaces of clients and routers. */
export const EGRESS_PROTOCOL = 30;

/** A link without what `apply` chooses itself: it is made down, and set up before its first route. */
export type PlannedLinkSpec = LinkSpec & { readonly up?: undefined; readonly alias?: undefined };

/** A neighbour that is never resolved. */
export interface PlannedNeighbour {
  readonly address: IpAddress;
  readonly mac: MacAddress;
}

export interface PlannedLink {
  readonly spec: PlannedLinkSpec;
  /** False: the link resolves no addresses (IFF_NOARP). */
  readonly arp: boolean;
  /** Permanent entries. */
  readonly neighbours: readonly PlannedNeighbour[];
}

/** A route of {@link EGRESS_PROTOCOL}. Of a family, table, destination and metric there is one. */
export interface PlannedRoute {
  readonly dst: Cidr;
  readonly table: number;
  readonly type: Extract<RouteType, "unicast" | "unreachable" | "throw">;
  /** The metric, from 1: so the kernel reports it in both families. */
  readonly metric: number;
  /** The name of a link; of the plan, or one that the namespace has already. Only of `unicast`. */
  readonly link?: string;
  readonly gateway?: IpAddress;
  readonly onlink?: boolean;
  readonly src?: IpAddress;
  readonly encap?: RouteEncap;
  /** MTU of packets that take this route, in bytes. Absent: the MTU of the link. */
  readonly mtu?: number;
}

/** A rule of {@link EGRESS_PROTOCOL} with the action `lookup`. */
export type PlannedRule = Required<Pick<RuleSpec, "family" | "priority" | "table">> &
  Pick<RuleSpec, "to" | "iif" | "fwmark">;

/** Everything that one namespace must have of ours, as data. */
export interface NetPlan {
  /** Values of settings, by key. They stay when the plan ends: the value before is not known. */
  readonly settings: ReadonlyMap<string, string>;
  readonly fouPorts: readonly FouPortEntry[];
  readonly links: readonly PlannedLink[];
  readonly rules: readonly PlannedRule[];
  readonly routes: readonly PlannedRoute[];
}

/** Which objects of a namespace are ours. What is ours and not in the plan is removed; nothing else is touched. */
export interface NetScope {
  /** All routes of these tables are ours. */
  readonly tables: ReadonlySet<number>;
  readonly isOurRule: (rule: Pick<RuleSpec, "priority" | "fwmark" | "table" | "protocol">) => boolean;
  /** True for the name of a link of ours. */
  readonly isOurLink: (name: string) => boolean;
  /** The UDP port of tunnels. */
  readonly port: number;
  readonly families: readonly IpFamily[];
}

/** The routes of a plan as the kernel takes them. */
export function routeSpec(route: PlannedRoute, linkIndex: number | undefined): RouteSpec {
  const { dst, table, type, metric, gateway, onlink, src, encap, mtu } = route;
  return { dst, table, type, metric, gateway, onlink, src, encap, mtu, linkIndex, protocol: EGRESS_PROTOCOL };
}
