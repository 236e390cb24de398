import type { IpAddress, IpFamily, MacAddress } from "#base/ip";

/** NUD_* states, by the names that iproute2 prints, in lower case. */
export type NeighbourState =
  | "none"
  | "incomplete"
  | "reachable"
  | "stale"
  | "delay"
  | "probe"
  | "failed"
  | "noarp"
  | "permanent";

/** The link-layer address of an IP address on a link. */
export interface Neighbour {
  readonly linkIndex: number;
  readonly address: IpAddress;
  readonly mac?: MacAddress;
  readonly state: NeighbourState;
  /** True for a proxy entry: this host answers for the address, and the entry has no MAC address. */
  readonly proxy: boolean;
}

/** An entry to put. */
export interface NeighbourSpec {
  readonly linkIndex: number;
  readonly address: IpAddress;
  /** Absent for a proxy entry. */
  readonly mac?: MacAddress | undefined;
  /** Default `permanent`. */
  readonly state?: NeighbourState | undefined;
  readonly proxy?: boolean | undefined;
}

export type NeighbourKey = Pick<NeighbourSpec, "linkIndex" | "address" | "proxy">;

export interface NeighbourFilter {
  readonly linkIndex?: number | undefined;
  readonly family?: IpFamily | undefined;
  /** List proxy entries instead of ordinary ones. Default false. */
  readonly proxy?: boolean | undefined;
}

/** The ARP and NDP tables of one namespace. Every method throws {@link KernelError}. */
export interface NeighbourPort {
  list(filter?: NeighbourFilter): Neighbour[];
  /** Throws `no-device` when there is no such link. */
  replace(spec: NeighbourSpec): void;
  /** Throws `not-found` when there is no such entry. */
  delete(key: NeighbourKey): void;
}
