import * as v from "valibot";
import {
  cidr,
  cost,
  flag,
  instant,
  interfaceAddress,
  interfaceName,
  ipAddress,
  milliseconds,
  port,
  uplinkName,
  whole,
} from "./values.ts";

const optional = v.exactOptional;
const MAX_UPLINKS = 64;
const MAX_ENTRIES = 256;
const MAX_TEXT = 1024;

const text = v.pipe(v.string("must be a text"), v.maxLength(MAX_TEXT, `must have at most ${MAX_TEXT} characters`));
const list = <Item extends v.BaseSchema<unknown, unknown, v.BaseIssue<unknown>>>(item: Item, max = MAX_ENTRIES) =>
  v.pipe(v.array(item, "must be a list"), v.maxLength(max, `must have at most ${max} entries`));

const isMapping = (value: unknown): boolean => typeof value === "object" && value !== null && !Array.isArray(value);
const anyMapping = v.custom<Record<string, unknown>>(isMapping, "must be a mapping");
/** Schema of a mapping: other keys than `entries` are faults. A list is not a mapping, although valibot accepts a list as an object. */
const mapping = <Entries extends v.ObjectEntries>(entries: Entries) => v.pipe(anyMapping, v.strictObject(entries));

const hostName = v.pipe(text, v.regex(/^[A-Za-z0-9_.:-]+$/, "must be a host name or an IP address"));
const domain = v.pipe(text, v.regex(/^[A-Za-z0-9_.-]+$/, "must be a domain, such as lan.example"));

const status = mapping({
  lastFailed: optional(instant),
  lastSucceeded: optional(instant),
  lastError: optional(text),
  lastWarning: optional(text),
});

const uplink = mapping({
  name: uplinkName,
  interface: interfaceName,
  cost: optional(cost),
  management: optional(flag),
  weight: optional(whole(1, 100, "a weight")),
  addresses: optional(list(interfaceAddress)),
  gateway4: optional(v.nullable(ipAddress)),
  gateway6: optional(v.nullable(ipAddress)),
  dnsServers: optional(list(ipAddress, 16)),
  searchDomains: optional(list(domain, 16)),
  mode: optional(v.picklist(["static", "observe", "external"], 'must be "static", "observe" or "external"')),
  status: optional(status),
});

/** Priorities below the kernel's own rule for the main table. */
const priority = whole(1, 32_765, "a priority");

const routing = mapping({
  manage: optional(flag),
  tableBase: optional(whole(256, 1_000_000, "a table number")),
  rulePriority: optional(priority),
  localRulePriority: optional(whole(0, 32_765, "a priority")),
  kubeRulePriority: optional(priority),
  podCIDRs: optional(list(cidr, 64)),
  serviceCIDRs: optional(list(cidr, 64)),
  clusterInterface: optional(interfaceName),
  routeProtocol: optional(whole(5, 255, "a route protocol")),
  cleanupOnExit: optional(flag),
  setMetrics: optional(flag),
});

const probeTarget = v.pipe(
  anyMapping,
  v.variant(
    "type",
    [
      v.strictObject({ type: v.literal("tcp"), host: hostName, port }),
      v.strictObject({
        type: v.literal("http"),
        url: v.pipe(text, v.url("must be a URL"), v.regex(/^https?:\/\//, "must be an http or https URL")),
        status: optional(whole(100, 599, "a status")),
        body: optional(
          v.pipe(text, v.minLength(1, "must not be empty"), v.maxLength(1024, "must have at most 1024 characters")),
        ),
        caFile: optional(v.pipe(text, v.startsWith("/", "must be an absolute path"))),
      }),
      v.strictObject({ type: v.literal("dns"), name: domain }),
    ],
    'must have a type: "tcp", "http" or "dns"',
  ),
);

const probe = mapping({
  intervalMs: optional(whole(1000, 86_400_000, "milliseconds")),
  timeoutMs: optional(milliseconds),
  failAfter: optional(whole(1, 100)),
  recoverAfter: optional(whole(1, 100)),
  maxCost: optional(cost),
  targets: optional(list(probeTarget, 16)),
});

const listener = mapping({
  name: optional(uplinkName),
  role: v.picklist(["host", "pod"], 'must be "host" or "pod"'),
  address: optional(
    v.pipe(
      ipAddress,
      v.check(
        (address) => !address.isUnspecified,
        "must be one address: a wildcard would accept clients from every network",
      ),
    ),
  ),
  port: optional(port),
  interface: optional(interfaceName),
  assignAddress: optional(flag),
  auth: optional(v.picklist(["none", "token"], 'must be "none" or "token"')),
  tls: optional(v.picklist(["off", "optional", "required"], 'must be "off", "optional" or "required"')),
  allowedPorts: optional(list(port)),
});

const cluster = mapping({
  nodeIP: optional(v.nullable(ipAddress)),
  prefixLength: optional(v.nullable(whole(1, 128, "a prefix length"))),
});

const limits = mapping({
  headerBytes: optional(whole(256, 1_048_576, "bytes")),
  headerFields: optional(whole(1, 1000)),
  requestLineBytes: optional(whole(64, 65_536, "bytes")),
  headerTimeoutMs: optional(milliseconds),
  keepAliveMs: optional(milliseconds),
  pendingHeaders: optional(whole(1, 65_536)),
  tunnels: optional(whole(1, 1_000_000)),
  dialling: optional(whole(1, 65_536)),
  podTunnelsPerClient: optional(whole(1, 65_536)),
  podConnectsPerSecond: optional(whole(1, 65_536)),
  drainMs: optional(whole(0, 86_400_000, "milliseconds")),
  backlog: optional(whole(1, 65_535)),
});

const tunnel = mapping({
  idleTimeoutMs: optional(milliseconds),
  quietTimeoutMs: optional(milliseconds),
  idleTimeoutOverrides: optional(v.record(text, milliseconds, "must be a mapping of destinations to milliseconds")),
  halfCloseTimeoutMs: optional(milliseconds),
  linkGraceMs: optional(whole(0, 86_400_000, "milliseconds")),
  firstByteTimeoutMs: optional(milliseconds),
  maxReplays: optional(whole(0, 100)),
  replayBytes: optional(whole(0, 16_777_216, "bytes")),
  bufferBytes: optional(whole(4096, 16_777_216, "bytes")),
});

const dns = mapping({
  timeoutMs: optional(milliseconds),
  minTtlMs: optional(whole(0, 86_400_000, "milliseconds")),
  maxTtlMs: optional(whole(0, 86_400_000, "milliseconds")),
  negativeTtlMs: optional(whole(0, 86_400_000, "milliseconds")),
  staleMs: optional(whole(0, 604_800_000, "milliseconds")),
  cacheEntries: optional(whole(1, 1_000_000)),
});

const selection = mapping({
  staggerMs: optional(milliseconds),
  tierDelayMs: optional(
    v.union([v.literal("timeout"), whole(0, 86_400_000, "milliseconds")], 'must be milliseconds or "timeout"'),
  ),
  requestTimeoutMs: optional(milliseconds),
  penaltyMs: optional(milliseconds),
  penaltyMaxMs: optional(milliseconds),
  penaltyEntries: optional(whole(1, 1_000_000)),
});

const transparent = mapping({
  enabled: optional(flag),
  ports: optional(v.pipe(list(port), v.minLength(1, "must have at least one port"))),
  port: optional(port),
  mark: optional(whole(1, 0x7fff_fe00, "a mark")),
  table: optional(whole(1, 0x7fff_ffff, "a table number")),
  rulePriority: optional(priority),
  skipUids: optional(list(whole(0, 0xffff_fffe, "a user id"))),
  skipCgroups: optional(
    list(v.pipe(text, v.regex(/^[^\s"\\;]+$/, "must be the path of a cgroup below the root, without spaces"))),
  ),
});

/** Schema of the file (docs/spec/uplink-proxy.md#2.2). Every key except `version` is optional; other keys are faults. */
export const configFile = mapping({
  version: v.literal(1, "must be 1"),
  maxCost: optional(cost),
  dialTimeoutMs: optional(whole(0, 3_600_000, "milliseconds")),
  uplinks: optional(list(uplink, MAX_UPLINKS)),
  routing: optional(routing),
  probe: optional(probe),
  listeners: optional(list(listener, 16)),
  cluster: optional(cluster),
  limits: optional(limits),
  tunnel: optional(tunnel),
  dns: optional(dns),
  selection: optional(selection),
  transparent: optional(transparent),
  workers: optional(whole(1, 64)),
  metrics: optional(flag),
  plainHttp: optional(flag),
  allowLoopback: optional(flag),
});

/** The values of the file, parsed, without defaults. */
export type ConfigFile = v.InferOutput<typeof configFile>;
export type UplinkEntry = v.InferOutput<typeof uplink>;
export type ListenerEntry = v.InferOutput<typeof listener>;
