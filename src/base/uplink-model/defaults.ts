import { Cidr, IpAddress } from "#base/ip";
import type {
  DnsSettings,
  LimitSettings,
  ListenerSettings,
  ProbeSettings,
  RoutingSettings,
  SelectionSettings,
  Settings,
  TransparentSettings,
  TunnelSettings,
} from "./settings.ts";

/** Default addresses of the listeners for the host and for pods (docs/spec/uplink-proxy.md#4). */
export const HOST_ADDRESS = IpAddress.parse("127.0.0.1");
export const HOST_ADDRESS_6 = IpAddress.parse("::1");
export const POD_ADDRESS = IpAddress.parse("169.254.100.1");
export const PROXY_PORT = 5443;
export const POD_BRIDGE = "cni0";
/** Default destination ports that pods may reach (docs/spec/uplink-proxy.md#9.1). */
export const POD_PORTS: readonly number[] = [443, 5000, 8443];
/** Default timeout of one attempt (docs/spec/uplink-proxy.md#2.1). */
export const DIAL_TIMEOUT_MS = 10_000;

const routing: RoutingSettings = {
  manage: true,
  tableBase: 500,
  rulePriority: 15_000,
  localRulePriority: 0,
  kubeRulePriority: 13_000,
  podCIDRs: [Cidr.parse("10.42.0.0/16")],
  serviceCIDRs: [Cidr.parse("10.43.0.0/16")],
  routeProtocol: 157,
  cleanupOnExit: false,
  setMetrics: false,
};

const probe: ProbeSettings = {
  intervalMs: 15_000,
  timeoutMs: 3000,
  failAfter: 3,
  recoverAfter: 2,
  maxCost: 0,
  targets: [],
};

const hostListener: ListenerSettings = {
  name: "host",
  role: "host",
  address: HOST_ADDRESS,
  port: PROXY_PORT,
  assignAddress: false,
  auth: "none",
  tls: "off",
  allowedPorts: [],
};

const limits: LimitSettings = {
  headerBytes: 16_384,
  headerFields: 64,
  requestLineBytes: 2048,
  headerTimeoutMs: 10_000,
  keepAliveMs: 30_000,
  pendingHeaders: 256,
  tunnels: 2048,
  dialling: 512,
  podTunnelsPerClient: 32,
  podConnectsPerSecond: 20,
  drainMs: 10_000,
  backlog: 511,
};

const tunnel: TunnelSettings = {
  idleTimeoutMs: 30_000,
  quietTimeoutMs: 900_000,
  idleTimeoutOverrides: {},
  halfCloseTimeoutMs: 30_000,
  linkGraceMs: 5000,
  firstByteTimeoutMs: 5000,
  maxReplays: 3,
  replayBytes: 65_536,
  bufferBytes: 262_144,
};

const dns: DnsSettings = {
  timeoutMs: 3000,
  minTtlMs: 5000,
  maxTtlMs: 300_000,
  negativeTtlMs: 5000,
  staleMs: 3_600_000,
  cacheEntries: 2000,
};

const selection: SelectionSettings = {
  staggerMs: 250,
  tierDelayMs: 3000,
  requestTimeoutMs: 30_000,
  penaltyMs: 30_000,
  penaltyMaxMs: 600_000,
  penaltyEntries: 4096,
};

const transparent: TransparentSettings = {
  enabled: false,
  ports: [80, 443],
  port: 15_443,
  mark: 0x55,
  table: 499,
  rulePriority: 11_500,
  skipUids: [],
  skipCgroups: [],
};

/** The default settings: no uplinks, one listener for the host, maximum cost 0. */
export const DEFAULT_SETTINGS: Settings = {
  maxCost: 0,
  dialTimeoutMs: DIAL_TIMEOUT_MS,
  uplinks: [],
  routing,
  probe,
  listeners: [hostListener],
  cluster: {},
  limits,
  tunnel,
  dns,
  selection,
  transparent,
  workers: 1,
  metrics: false,
  plainHttp: false,
  allowLoopback: false,
};
