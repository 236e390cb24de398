import type { Cidr, IpAddress } from "#base/ip";

/** Reachability of an uplink (docs/spec/uplink-proxy.md#2.3). Times are milliseconds since the epoch. */
export interface UplinkStatus {
  readonly lastFailed?: number;
  readonly lastSucceeded?: number;
  /** Empty if there is no error. */
  readonly lastError: string;
  readonly lastWarning: string;
  /** The failure is a captive portal, which carries traffic too: only a probe, or a report, ends it. */
  readonly isPortal?: boolean;
}

/** The status of an uplink that was never tested: no error. */
export const UNTESTED: UplinkStatus = { lastError: "", lastWarning: "" };

/** True if the last failure is later than the last success. An untested uplink has no error (docs/spec/uplink-proxy.md#2.3). */
export function hasError({ lastFailed, lastSucceeded }: UplinkStatus): boolean {
  return lastFailed !== undefined && (lastSucceeded === undefined || lastFailed > lastSucceeded);
}

/** An address that an uplink has, usable as a source or not. */
export interface UplinkAddress {
  readonly address: IpAddress;
  readonly prefixLength: number;
  /**
   * True if the address may be the source of a connection (docs/spec/uplink-proxy.md#6.1): not link-local, loopback, unspecified,
   * multicast, tentative or deprecated, and assigned right now.
   */
  readonly isUsable: boolean;
}

/** One uplink as it is right now. */
export interface Uplink {
  /** The operator's name; on EVE the interface's. The identity of an uplink. */
  readonly name: string;
  /** The name of the interface, which may be absent from the system. */
  readonly ifName: string;
  /** 0 to 255; cheaper first. */
  readonly cost: number;
  /** Uplinks that are not for management are never chosen and never shown. */
  readonly isManagement: boolean;
  /** True if the uplink carries IP (EVE's IsL3Port). */
  readonly isL3: boolean;
  /** True if the configuration of the uplink is valid (EVE's InvalidConfig is false). */
  readonly isValid: boolean;
  /** True if the interface has carrier and is administratively up. Absent interfaces are down. */
  readonly isUp: boolean;
  /** The share of new tunnels among uplinks of the same cost; at least 1. */
  readonly weight: number;
  /** The addresses of both families, also link-local addresses, in the order of the configuration or the kernel. */
  readonly addresses: readonly UplinkAddress[];
  readonly gateway4?: IpAddress;
  readonly gateway6?: IpAddress;
  readonly dnsServers: readonly IpAddress[];
  readonly searchDomains: readonly string[];
  readonly status: UplinkStatus;
  /** The routing table in use; absent if we do not manage routing, or if the interface is absent. */
  readonly table?: number;
  /** The last active probe, for people: "tcp 203.0.113.80:443 ok 12 ms". */
  readonly lastProbe?: string;
}

/** All data that the choice of an uplink depends on, read once for each request. Immutable. */
export interface Snapshot {
  /** True when both inputs were read at least once (docs/spec/uplink-proxy.md#2.1). A configuration file makes it true at once. */
  readonly ready: boolean;
  /** The maximum cost, 0 to 255: uplinks with a higher cost are not used. */
  readonly maxCost: number;
  /** The timeout of one attempt, which includes DNS and the connect, in milliseconds; 1 to 3,600,000. */
  readonly dialTimeoutMs: number;
  /** The uplinks, in the order of the configuration. */
  readonly uplinks: readonly Uplink[];
  /** Every address of this host, on any interface. */
  readonly localAddresses: readonly IpAddress[];
  /** Destinations that are dialled unbound, through the main table (docs/spec/uplink-proxy.md#10.3): pods, Services, node subnet, local. */
  readonly bypass: readonly Cidr[];
}
