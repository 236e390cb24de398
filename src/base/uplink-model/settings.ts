import type { Cidr, IpAddress } from "#base/ip";
import type { UplinkStatus } from "./uplink.ts";

/**
 * `static`: the addresses and gateways of the file are used. `observe`: those of the kernel are used. `external`: an agent pushes the
 * status (docs/spec/uplink-proxy.md#2.2).
 */
export type UplinkMode = "static" | "observe" | "external";

/** The settings of an uplink. */
export interface UplinkSettings {
  readonly name: string;
  readonly interface: string;
  readonly cost: number;
  readonly management: boolean;
  readonly weight: number;
  readonly mode: UplinkMode;
  readonly addresses: readonly { readonly address: IpAddress; readonly prefixLength: number }[];
  readonly gateway4?: IpAddress;
  readonly gateway6?: IpAddress;
  readonly dnsServers: readonly IpAddress[];
  readonly searchDomains: readonly string[];
  readonly status: UplinkStatus;
  /** Further state from an agent that publishes it (EVE's IsL3Port, InvalidConfig, Up). Absent: the kernel's state counts. */
  readonly published?: { readonly isL3: boolean; readonly isValid: boolean; readonly isUp: boolean };
}

/** Per-uplink routing (docs/spec/uplink-proxy.md#3). */
export interface RoutingSettings {
  readonly manage: boolean;
  /** The number of an uplink's table is this number plus the interface index. Default 500. */
  readonly tableBase: number;
  /** Default 15000. */
  readonly rulePriority: number;
  /** Default 0: the priority that the kernel uses. */
  readonly localRulePriority: number;
  /** Default 13000. */
  readonly kubeRulePriority: number;
  readonly podCIDRs: readonly Cidr[];
  readonly serviceCIDRs: readonly Cidr[];
  /** Interface of the cluster, when Services go through table 400 (docs/spec/uplink-proxy.md#3.1). */
  readonly clusterInterface?: string;
  /** Protocol number of our routes and rules. Default 157, which rtnetlink.h and iproute2 give to nobody. */
  readonly routeProtocol: number;
  readonly cleanupOnExit: boolean;
  /** Rewrite the metrics of the main table's default routes: 5000 + rank of management uplinks, 10000 + rank of others. Default false. */
  readonly setMetrics: boolean;
}

/** A GET and the answer that is expected. Any other answer comes from somebody else, such as a captive portal. */
export interface HttpProbeTarget {
  readonly type: "http";
  readonly url: string;
  /** Default: 200 to 299. A redirect is not followed. */
  readonly status?: number;
  /** A text that the first 64 KiB of the body must contain. Default: the body is not read. */
  readonly body?: string;
  /** PEM file with the authorities of an https server. Default: those of the system, and Node.js's own. */
  readonly caFile?: string;
}

export type ProbeTarget =
  | { readonly type: "tcp"; readonly host: string; readonly port: number }
  | HttpProbeTarget
  | { readonly type: "dns"; readonly name: string };

/** Active probes (docs/spec/uplink-proxy.md#3.3). */
export interface ProbeSettings {
  readonly intervalMs: number;
  readonly timeoutMs: number;
  readonly failAfter: number;
  readonly recoverAfter: number;
  /** Uplinks with a higher cost get no periodic probes. Default 0. */
  readonly maxCost: number;
  readonly targets: readonly ProbeTarget[];
}

export type ListenerRole = "host" | "pod" | "transparent";

/** A listener (docs/spec/uplink-proxy.md#4). */
export interface ListenerSettings {
  readonly name: string;
  readonly role: ListenerRole;
  readonly address: IpAddress;
  readonly port: number;
  /** The bridge of a pod listener. */
  readonly interface?: string;
  /** True if the program adds the pod listener's address to its interface. */
  readonly assignAddress: boolean;
  readonly auth: "none" | "token";
  /** `optional`: the first byte of a connection decides whether TLS is used. */
  readonly tls: "off" | "optional" | "required";
  /** Destination ports that pods may reach. Default 443, 5000, 8443. */
  readonly allowedPorts: readonly number[];
}

/** Bounds of the front end (docs/spec/uplink-proxy.md#9.3). */
export interface LimitSettings {
  readonly headerBytes: number;
  readonly headerFields: number;
  readonly requestLineBytes: number;
  readonly headerTimeoutMs: number;
  readonly keepAliveMs: number;
  /** The maximum number of connections without a complete request head; at the limit the oldest is closed. */
  readonly pendingHeaders: number;
  readonly tunnels: number;
  readonly dialling: number;
  readonly podTunnelsPerClient: number;
  readonly podConnectsPerSecond: number;
  readonly drainMs: number;
  readonly backlog: number;
}

/** Settings of tunnels (docs/spec/uplink-proxy.md#6.4 and #7). */
export interface TunnelSettings {
  readonly idleTimeoutMs: number;
  /** Longest silence after bytes of a destination whose host answers keep-alive probes. Default 900000, as in Squid (read_timeout). */
  readonly quietTimeoutMs: number;
  /** Idle timeouts of single destinations (`host:port` or `host`), for example of slow ones. */
  readonly idleTimeoutOverrides: Readonly<Record<string, number>>;
  readonly halfCloseTimeoutMs: number;
  /** Tunnels of an uplink that has lost its link wait for it this long, while the host has their address. Default 5000. */
  readonly linkGraceMs: number;
  readonly firstByteTimeoutMs: number;
  readonly maxReplays: number;
  readonly replayBytes: number;
  readonly bufferBytes: number;
}

/** Settings of DNS (docs/spec/uplink-proxy.md#6.3). */
export interface DnsSettings {
  readonly timeoutMs: number;
  readonly minTtlMs: number;
  readonly maxTtlMs: number;
  readonly negativeTtlMs: number;
  readonly staleMs: number;
  readonly cacheEntries: number;
}

/** Settings of the choice of uplinks (docs/spec/uplink-proxy.md#6.1). */
export interface SelectionSettings {
  readonly staggerMs: number;
  /**
   * Least time before the next tier starts; it is longer for an uplink with a long round-trip time. `"timeout"`: the next tier starts only
   * when the cheaper one has failed.
   */
  readonly tierDelayMs: number | "timeout";
  readonly requestTimeoutMs: number;
  /** The first penalty; it doubles with each failure up to the maximum. */
  readonly penaltyMs: number;
  readonly penaltyMaxMs: number;
  readonly penaltyEntries: number;
}

/** Settings of transparent mode (docs/spec/uplink-proxy.md#14). */
export interface TransparentSettings {
  readonly enabled: boolean;
  readonly ports: readonly number[];
  readonly port: number;
  readonly mark: number;
  readonly table: number;
  readonly rulePriority: number;
  readonly skipUids: readonly number[];
  readonly skipCgroups: readonly string[];
}

/** The node's place in its cluster, for `mgmtproxy-env` and the bypass set. */
export interface ClusterSettings {
  readonly nodeIP?: IpAddress;
  readonly prefixLength?: number;
}

/** One whole configuration, from any source. */
export interface Settings {
  readonly maxCost: number;
  readonly dialTimeoutMs: number;
  readonly uplinks: readonly UplinkSettings[];
  readonly routing: RoutingSettings;
  readonly probe: ProbeSettings;
  readonly listeners: readonly ListenerSettings[];
  readonly cluster: ClusterSettings;
  readonly limits: LimitSettings;
  readonly tunnel: TunnelSettings;
  readonly dns: DnsSettings;
  readonly selection: SelectionSettings;
  readonly transparent: TransparentSettings;
  /** Threads that accept and carry tunnels. 1: only the main thread. */
  readonly workers: number;
  /** `GET /metrics` on the host listener. */
  readonly metrics: boolean;
  /** Absolute-form `http://` requests are forwarded. */
  readonly plainHttp: boolean;
  /** Loopback destinations are allowed on the host listener. */
  readonly allowLoopback: boolean;
}
