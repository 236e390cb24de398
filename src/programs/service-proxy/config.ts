import { readFileSync } from "node:fs";
import * as v from "valibot";
import { parse as parseYaml, stringify } from "yaml";
import { ConfigError, type FlagValues, type ListenAddress, parseDuration, parseListenAddress } from "#base/config";
import { type Cidr, IpAddress } from "#base/ip";
import {
  type FeatureGates,
  gatePairs,
  nodeNameOf,
  parseCidrList,
  parseFeatureGates,
  type serviceProxyFlags,
  splitList,
} from "./flags.ts";

export type DetectLocalMode = "ClusterCIDR" | "NodeCIDR" | "BridgeInterface" | "InterfaceNamePrefix";

/** Kernel parameters; `undefined`: leave alone. Seconds. */
export interface ConntrackSettings {
  readonly maxPerCore: number;
  readonly min: number;
  readonly tcpEstablishedSeconds: number;
  readonly tcpCloseWaitSeconds: number;
  readonly tcpBeLiberal: boolean;
  readonly udpSeconds: number;
  readonly udpStreamSeconds: number;
}

/** All of one run's configuration, from flags or a file. Frozen. */
export interface ServiceProxyConfig {
  readonly nodeName: string;
  readonly kubeconfig: string | undefined;
  /** Overrides the node's primary address; `undefined`: unspecified. */
  readonly bindAddress: IpAddress | undefined;
  /** `undefined`: none. */
  readonly healthz: ListenAddress | undefined;
  readonly metrics: ListenAddress | undefined;
  readonly bindAddressHardFail: boolean;
  readonly syncMs: number;
  readonly minSyncMs: number;
  /** The packet mark's one bit. */
  readonly mark: number;
  readonly masqueradeAll: boolean;
  readonly nodePortAddresses: "primary" | readonly Cidr[];
  readonly detectLocalMode: DetectLocalMode;
  readonly clusterCIDRs: readonly Cidr[];
  readonly podBridgeInterface: string;
  readonly podInterfaceNamePrefix: string;
  readonly gates: FeatureGates;
  readonly conntrack: ConntrackSettings;
  readonly oomScoreAdj: number;
  readonly profiling: boolean;
  readonly tableName: string;
  readonly startupHealth: "strict" | "compatible";
  readonly drainingTaintKeys: readonly string[];
  /** What is to be told at the start: keys and gates that mean nothing here. */
  readonly notes: readonly string[];
}

type Values = FlagValues<typeof serviceProxyFlags>;

const duration = v.union([v.string(), v.number()]);
const file = v.looseObject({
  apiVersion: v.literal("kubeproxy.config.k8s.io/v1alpha1"),
  kind: v.literal("KubeProxyConfiguration"),
  featureGates: v.optional(v.nullable(v.record(v.string(), v.boolean()))),
  clientConnection: v.optional(v.looseObject({ kubeconfig: v.optional(v.string()) })),
  hostnameOverride: v.optional(v.string()),
  bindAddress: v.optional(v.string()),
  healthzBindAddress: v.optional(v.string()),
  metricsBindAddress: v.optional(v.string()),
  bindAddressHardFail: v.optional(v.boolean()),
  enableProfiling: v.optional(v.boolean()),
  mode: v.optional(v.picklist(["", "nftables"], 'must be "nftables" or empty')),
  configSyncPeriod: v.optional(duration),
  nftables: v.optional(
    v.looseObject({
      masqueradeBit: v.optional(v.nullable(v.pipe(v.number(), v.integer(), v.minValue(0), v.maxValue(31)))),
      masqueradeAll: v.optional(v.boolean()),
      syncPeriod: v.optional(duration),
      minSyncPeriod: v.optional(duration),
    }),
  ),
  detectLocalMode: v.optional(v.picklist(["", "ClusterCIDR", "NodeCIDR", "BridgeInterface", "InterfaceNamePrefix"])),
  detectLocal: v.optional(
    v.looseObject({ bridgeInterface: v.optional(v.string()), interfaceNamePrefix: v.optional(v.string()) }),
  ),
  clusterCIDR: v.optional(v.string()),
  nodePortAddresses: v.optional(v.nullable(v.array(v.string()))),
  oomScoreAdj: v.optional(v.nullable(v.pipe(v.number(), v.integer(), v.minValue(-1000), v.maxValue(1000)))),
  conntrack: v.optional(
    v.looseObject({
      maxPerCore: v.optional(v.nullable(v.number())),
      min: v.optional(v.nullable(v.number())),
      tcpEstablishedTimeout: v.optional(v.nullable(duration)),
      tcpCloseWaitTimeout: v.optional(v.nullable(duration)),
      tcpBeLiberal: v.optional(v.boolean()),
      udpTimeout: v.optional(duration),
      udpStreamTimeout: v.optional(duration),
    }),
  ),
});
type FileContent = v.InferOutput<typeof file>;
const KNOWN_KEYS: ReadonlySet<string> = new Set(Object.keys(file.entries));

/** From flags, or from the file that they name. Throws `ConfigError` with every fault. */
export function serviceProxyConfig(values: Values): ServiceProxyConfig {
  return values.config === undefined ? resolve(values, []) : fromFile(values, values.config);
}

/** With a file, flags but those for logging and the node's name count no more (spec service-proxy 2.10). */
function fromFile(values: Values, path: string): ServiceProxyConfig {
  const content = parseFile(path, readFile(path));
  const unknown = Object.keys(content).filter((key) => !KNOWN_KEYS.has(key));
  const notes = unknown.map((key) => `${path}: ${key} means nothing to this proxy`);
  return resolve(overridden(values, content, path), notes);
}

/** Throws `ConfigError`. Exported for its fuzz test. */
export function parseFile(path: string, text: string): FileContent {
  let value: unknown;
  try {
    value = parseYaml(text, { maxAliasCount: 10 });
  } catch (error) {
    throw new ConfigError("invalid-flags", [
      `--config: ${path} is neither YAML nor JSON: ${(error as Error).message.split("\n")[0]}`,
    ]);
  }
  const parsed = v.safeParse(file, value);
  if (parsed.success) return parsed.output;
  throw new ConfigError(
    "invalid-flags",
    parsed.issues.map((issue) => `--config: ${path}: ${v.getDotPath(issue) ?? "the document"}: ${issue.message}`),
  );
}

function overridden(values: Values, content: FileContent, path: string): Values {
  const { nftables = {}, conntrack = {}, detectLocal = {} } = content;
  const time = (field: string, text: string | number | null | undefined, otherwise: number): number => {
    if (text === undefined || text === null) return otherwise;
    if (typeof text === "number") return text / 1e6; // Go writes durations as nanoseconds where it writes numbers
    try {
      return parseDuration(text);
    } catch {
      throw new ConfigError("invalid-flags", [`--config: ${path}: ${field}: "${text}" is no duration such as 30s`]);
    }
  };
  const periods = {
    syncPeriod: time("nftables.syncPeriod", nftables.syncPeriod, values.syncPeriod) || values.syncPeriod,
    minSyncPeriod: time("nftables.minSyncPeriod", nftables.minSyncPeriod, values.minSyncPeriod),
    conntrackTcpEstablished: time(
      "conntrack.tcpEstablishedTimeout",
      conntrack.tcpEstablishedTimeout,
      values.conntrackTcpEstablished,
    ),
    conntrackTcpCloseWait: time(
      "conntrack.tcpCloseWaitTimeout",
      conntrack.tcpCloseWaitTimeout,
      values.conntrackTcpCloseWait,
    ),
    conntrackUdp: time("conntrack.udpTimeout", conntrack.udpTimeout, values.conntrackUdp),
    conntrackUdpStream: time("conntrack.udpStreamTimeout", conntrack.udpStreamTimeout, values.conntrackUdpStream),
  };
  return {
    ...values,
    ...periods,
    kubeconfig: nonEmpty(content.clientConnection?.kubeconfig) ?? values.kubeconfig,
    hostnameOverride: values.hostnameOverride === "" ? (content.hostnameOverride ?? "") : values.hostnameOverride,
    bindAddress: nonEmpty(content.bindAddress) ?? "0.0.0.0",
    healthzBindAddress: content.healthzBindAddress ?? "0.0.0.0:10256",
    metricsBindAddress: content.metricsBindAddress ?? "127.0.0.1:10249",
    bindAddressHardFail: content.bindAddressHardFail ?? false,
    profiling: content.enableProfiling ?? false,
    masqueradeBit: nftables.masqueradeBit ?? 14,
    masqueradeAll: nftables.masqueradeAll ?? false,
    detectLocalMode: (nonEmpty(content.detectLocalMode) as DetectLocalMode | undefined) ?? "ClusterCIDR",
    clusterCIDR: content.clusterCIDR ?? "",
    podBridgeInterface: detectLocal.bridgeInterface ?? "",
    podInterfaceNamePrefix: detectLocal.interfaceNamePrefix ?? "",
    nodePortAddresses: content.nodePortAddresses?.join(",") ?? "primary",
    oomScoreAdj: content.oomScoreAdj ?? -999,
    featureGates: Object.entries(content.featureGates ?? {})
      .map(([name, on]) => `${name}=${on}`)
      .join(","),
    conntrackMaxPerCore: conntrack.maxPerCore ?? values.conntrackMaxPerCore,
    conntrackMin: conntrack.min ?? values.conntrackMin,
    conntrackTcpBeLiberal: conntrack.tcpBeLiberal ?? false,
  };
}

function resolve(values: Values, notes: readonly string[]): ServiceProxyConfig {
  const faults: string[] = [];
  const attempt = <T>(read: () => T, otherwise: T): T => {
    try {
      return read();
    } catch (error) {
      if (!(error instanceof ConfigError)) throw error;
      faults.push(...error.faults);
      return otherwise;
    }
  };
  if (values.minSyncPeriod > values.syncPeriod) faults.push("--min-sync-period is longer than --sync-period");
  const bindAddress = IpAddress.tryParse(values.bindAddress);
  if (bindAddress === undefined) faults.push(`--bind-address: "${values.bindAddress}" is no address`);
  const isUnspecified = bindAddress === undefined || /^(0\.0\.0\.0|::)$/.test(bindAddress.toString());
  const isIpv6 = bindAddress?.family === 6;
  const { unknown, ...gates } = attempt(() => parseFeatureGates(gatePairs(values.featureGates)), parseFeatureGates([]));
  const mode = values.detectLocalMode;
  if (mode === "BridgeInterface" && values.podBridgeInterface === "")
    faults.push("--detect-local-mode=BridgeInterface needs --pod-bridge-interface");
  if (mode === "InterfaceNamePrefix" && values.podInterfaceNamePrefix === "") {
    faults.push("--detect-local-mode=InterfaceNamePrefix needs --pod-interface-name-prefix");
  }
  for (const [flag, name] of [
    ["pod-bridge-interface", values.podBridgeInterface],
    ["pod-interface-name-prefix", values.podInterfaceNamePrefix],
  ] as const) {
    if (name !== "" && !/^[^\s"/*\\;]{1,15}$/.test(name))
      faults.push(`--${flag}: "${name}" cannot be the name of an interface`);
  }
  if (!/^[a-zA-Z_][a-zA-Z0-9_-]{0,30}$/.test(values.tableName))
    faults.push(`--table-name: "${values.tableName}" cannot be the name of a table`);
  const config: ServiceProxyConfig = {
    nodeName: attempt(() => nodeNameOf(values.hostnameOverride), ""),
    kubeconfig: values.kubeconfig,
    bindAddress: isUnspecified ? undefined : bindAddress,
    healthz: attempt(
      () =>
        listenAddress("healthz-bind-address", values.healthzBindAddress, isIpv6 ? "[::]" : "0.0.0.0", 10_256, isIpv6),
      undefined,
    ),
    metrics: attempt(
      () =>
        listenAddress(
          "metrics-bind-address",
          values.metricsBindAddress,
          isIpv6 ? "[::1]" : "127.0.0.1",
          10_249,
          isIpv6,
        ),
      undefined,
    ),
    bindAddressHardFail: values.bindAddressHardFail,
    syncMs: values.syncPeriod,
    minSyncMs: values.minSyncPeriod,
    mark: (1 << values.masqueradeBit) >>> 0,
    masqueradeAll: values.masqueradeAll,
    nodePortAddresses: attempt(() => nodePortAddresses(values.nodePortAddresses), "primary"),
    detectLocalMode: mode,
    clusterCIDRs: attempt(() => parseCidrList("cluster-cidr", splitList(values.clusterCIDR)), []),
    podBridgeInterface: values.podBridgeInterface,
    podInterfaceNamePrefix: values.podInterfaceNamePrefix,
    gates,
    conntrack: {
      maxPerCore: values.conntrackMaxPerCore,
      min: values.conntrackMin,
      tcpEstablishedSeconds: Math.round(values.conntrackTcpEstablished / 1000),
      tcpCloseWaitSeconds: Math.round(values.conntrackTcpCloseWait / 1000),
      tcpBeLiberal: values.conntrackTcpBeLiberal,
      udpSeconds: Math.round(values.conntrackUdp / 1000),
      udpStreamSeconds: Math.round(values.conntrackUdpStream / 1000),
    },
    oomScoreAdj: values.oomScoreAdj,
    profiling: values.profiling,
    tableName: values.tableName,
    startupHealth: values.startupHealth,
    drainingTaintKeys: splitList(values.drainingTaintKeys),
    notes: [...notes, ...unknown.map((gate) => `feature gate ${gate} means nothing to this proxy`)],
  };
  if (faults.length > 0) throw new ConfigError("invalid-flags", faults);
  return Object.freeze(config);
}

/** The configuration in force as a file that `--config` reads back. */
export function writeConfig(values: Values): string {
  const config = serviceProxyConfig(values);
  return stringify({
    apiVersion: "kubeproxy.config.k8s.io/v1alpha1",
    kind: "KubeProxyConfiguration",
    clientConnection: { kubeconfig: config.kubeconfig ?? "" },
    hostnameOverride: values.hostnameOverride,
    bindAddress: values.bindAddress,
    healthzBindAddress: values.healthzBindAddress,
    metricsBindAddress: values.metricsBindAddress,
    bindAddressHardFail: config.bindAddressHardFail,
    enableProfiling: config.profiling,
    mode: "nftables",
    nftables: {
      masqueradeBit: values.masqueradeBit,
      masqueradeAll: config.masqueradeAll,
      syncPeriod: `${config.syncMs}ms`,
      minSyncPeriod: `${config.minSyncMs}ms`,
    },
    detectLocalMode: config.detectLocalMode,
    detectLocal: { bridgeInterface: config.podBridgeInterface, interfaceNamePrefix: config.podInterfaceNamePrefix },
    clusterCIDR: config.clusterCIDRs.join(","),
    nodePortAddresses: config.nodePortAddresses === "primary" ? ["primary"] : config.nodePortAddresses.map(String),
    oomScoreAdj: config.oomScoreAdj,
    featureGates: {
      KubeProxyDrainingTerminatingNodes: config.gates.drainingTerminatingNodes,
      AllowServiceExternalIPs: config.gates.allowServiceExternalIPs,
    },
    conntrack: {
      maxPerCore: config.conntrack.maxPerCore,
      min: config.conntrack.min,
      tcpEstablishedTimeout: `${config.conntrack.tcpEstablishedSeconds}s`,
      tcpCloseWaitTimeout: `${config.conntrack.tcpCloseWaitSeconds}s`,
      tcpBeLiberal: config.conntrack.tcpBeLiberal,
      udpTimeout: `${config.conntrack.udpSeconds}s`,
      udpStreamTimeout: `${config.conntrack.udpStreamSeconds}s`,
    },
  });
}

/** A bare address gets the default port; the default address follows the family of --bind-address. */
function listenAddress(
  flag: string,
  text: string,
  host: string,
  port: number,
  isIpv6: boolean,
): ListenAddress | undefined {
  if (text === "") return undefined;
  const isDefault = text === `0.0.0.0:${port}` || text === `127.0.0.1:${port}`;
  if (isDefault && isIpv6) return parseListenAddress(`${host}:${port}`);
  const bare = IpAddress.tryParse(text.replace(/^\[(.*)\]$/, "$1"));
  if (bare !== undefined) return { host: bare.toString(), port };
  try {
    return parseListenAddress(text);
  } catch (error) {
    if (!(error instanceof ConfigError)) throw error;
    throw new ConfigError(
      "invalid-flags",
      error.faults.map((fault) => `--${flag}: ${fault}`),
    );
  }
}

function nodePortAddresses(text: string): "primary" | readonly Cidr[] {
  const words = splitList(text);
  if (words.length === 1 && words[0] === "primary") return "primary";
  if (words.includes("primary"))
    throw new ConfigError("invalid-flags", ["--nodeport-addresses: primary stands alone, or CIDRs do"]);
  return parseCidrList("nodeport-addresses", words);
}

function nonEmpty(text: string | undefined): string | undefined {
  return text === "" ? undefined : text;
}

function readFile(path: string): string {
  try {
    return readFileSync(path, "utf8");
  } catch (error) {
    throw new ConfigError("invalid-flags", [`--config: cannot read ${path}: ${(error as Error).message}`]);
  }
}
