import { ConfigError, ignoredGiven, type ListenAddress, parseListenAddress } from "#base/config";
import { Cidr, IpAddress } from "#base/ip";
import {
  type AddressMode,
  type ConntrackSettings,
  HOST_PORTS,
  type NodeAwareProxyConfig,
  type NodePortPlaces,
  type PortRange,
  PRIMARY_ADDRESSES,
  parsePortRanges,
  REPLACEMENT_SUFFIX,
} from "#features/service-proxy";
import { faultInFile, overridden, overriddenFlags, parseFile, readConfigFile } from "./config-file.ts";
import {
  type FeatureGates,
  gatePairs,
  nodeNameOf,
  parseCidrList,
  parseFeatureGates,
  type ServiceProxyValues,
  serviceProxyFlags,
  splitList,
} from "./flags.ts";

/** The file that a configuration was read from. */
export interface ConfigSource {
  readonly path: string;
  /** SHA-256 of the file's text: see `digestOf`. */
  readonly digest: string;
}

/** Configuration of one run, from flags or a file. Frozen. */
export interface ServiceProxyConfig extends NodeAwareProxyConfig {
  /** The file; `undefined` if the configuration comes from flags only. */
  readonly source: ConfigSource | undefined;
  readonly kubeconfig: string | undefined;
  /** Overrides the node's primary address; `undefined`: the wildcard, which overrides nothing. */
  readonly bindAddress: IpAddress | undefined;
  /** Address of the health endpoint; `undefined` if it is not served. */
  readonly healthz: ListenAddress | undefined;
  readonly metrics: ListenAddress | undefined;
  /** Ranges of those who may read what is not health there; empty: everybody. */
  readonly metricsFrom: readonly Cidr[];
  /** Metrics and profiles ask for a token that the API server reviews. */
  readonly metricsAuthorization: boolean;
  readonly bindAddressHardFail: boolean;
  readonly gates: FeatureGates;
  readonly conntrack: ConntrackSettings;
  readonly oomScoreAdj: number;
  readonly profiling: boolean;
  /** Path of the socket for heap snapshots; empty: none. */
  readonly heapSnapshotSocket: string;
  /** Folder in which what is under way is recorded; empty: none. */
  readonly recordDir: string;
  readonly startupHealth: "strict" | "compatible";
  /** Which external addresses Services get. */
  readonly serviceAddresses: AddressMode;
  /** Ports of nodes that no Service gets, those that are always kept included. */
  readonly hostPorts: readonly PortRange[];
  readonly drainingTaintKeys: readonly string[];
  /** Lines to log at the start: unknown keys and gates, flags without an effect, and flags that the file overrides. */
  readonly notes: readonly string[];
}

/** Reads the flags, or the file that the flag `--config` names. `given`: names of the flags that were given. Throws `ConfigError` with every fault. */
export function serviceProxyConfig(
  values: ServiceProxyValues,
  given: ReadonlySet<string> = new Set(),
): ServiceProxyConfig {
  const ignored = ignoredGiven(serviceProxyFlags, values);
  const ineffective = ignored.length === 0 ? [] : [`flags without an effect in this proxy: ${ignored.join(", ")}`];
  // kube-proxy reads an empty value of this flag as no file, because flags in Go are never absent.
  if (values.config === undefined || values.config === "") return resolve(values, ineffective, undefined);
  const path = values.config;
  const { content, notes, digest } = readConfigFile(path);
  const replaced = overriddenFlags(content).filter((name) => given.has(name));
  if (replaced.length > 0)
    ineffective.push(`flags that ${path} overrides: ${replaced.map((name) => `--${name}`).join(", ")}`);
  try {
    return resolve(overridden(values, content), [...ineffective, ...notes], { path, digest });
  } catch (error) {
    if (!(error instanceof ConfigError)) throw error;
    throw new ConfigError(
      "invalid-flags",
      error.faults.map((fault) => faultInFile(path, fault)),
    );
  }
}

/** The configuration by a file's text, such as that of a ConfigMap, which `from` names. Throws `ConfigError` with every fault. */
export function serviceProxyConfigOf(
  values: ServiceProxyValues,
  { text, from }: { readonly text: string; readonly from: string },
): ServiceProxyConfig {
  return resolve(overridden(values, parseFile(from, text)), [], undefined);
}

function resolve(
  values: ServiceProxyValues,
  notes: readonly string[],
  source: ConfigSource | undefined,
): ServiceProxyConfig {
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
  if (bindAddress === undefined) faults.push(`--bind-address: "${values.bindAddress}" is not an address`);
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
  if (values.tableName.endsWith(REPLACEMENT_SUFFIX)) {
    faults.push(
      `--table-name: "${values.tableName}" is the name of another proxy's replacement table: choose a name that does not end in ${REPLACEMENT_SUFFIX}`,
    );
  }
  const config: ServiceProxyConfig = {
    source,
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
    metricsFrom: values.metricsFrom,
    metricsAuthorization: values.metricsAuthorization,
    bindAddressHardFail: values.bindAddressHardFail,
    syncMs: values.syncPeriod,
    minSyncMs: values.minSyncPeriod,
    mark: (1 << values.masqueradeBit) >>> 0,
    masqueradeAll: values.masqueradeAll,
    nodePortAddresses: attempt(() => nodePortPlaces(values.nodePortAddresses), PRIMARY_ADDRESSES),
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
    heapSnapshotSocket: values.heapSnapshotSocket,
    recordDir: values.recordDir,
    tableName: values.tableName,
    startupHealth: values.startupHealth,
    serviceAddresses: values.serviceAddresses,
    hostPorts: attempt(() => hostPorts(values.hostPorts), HOST_PORTS),
    drainingTaintKeys: splitList(values.drainingTaintKeys),
    notes: [...notes, ...unknown.map((gate) => `feature gate ${gate} has no effect in this proxy`)],
  };
  if (faults.length > 0) throw new ConfigError("invalid-flags", faults);
  return Object.freeze(config);
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

function hostPorts(text: string): readonly PortRange[] {
  const more = parsePortRanges(text);
  if (more !== undefined) return [...HOST_PORTS, ...more];
  throw new ConfigError("invalid-flags", [`--host-ports: "${text}" is no list of ports; an example is 3389,8000-8100`]);
}

/** Words of `--nodeport-addresses`, besides CIDRs. `all` stands for every range of both families. */
const ALL = ["0.0.0.0/0", "::/0"];

/** Reads `--nodeport-addresses`: CIDRs, `primary`, `localhost` and `all`, in any mixture; nothing means `primary`. Throws `ConfigError`. */
function nodePortPlaces(text: string): NodePortPlaces {
  const words = splitList(text);
  if (words.length === 0) return PRIMARY_ADDRESSES;
  const keywords = ["primary", "localhost"];
  const texts = words.filter((word) => !keywords.includes(word)).flatMap((word) => (word === "all" ? ALL : [word]));
  const ranges = texts.map((text) => {
    const range = Cidr.tryParse(text);
    if (range !== undefined) return range;
    const why = `"${text}" is none of primary, localhost and all, and is not a CIDR; an example is 10.0.0.0/8`;
    throw new ConfigError("invalid-flags", [`--nodeport-addresses: ${why}`]);
  });
  return { hasPrimary: words.includes("primary"), hasLocalhost: words.includes("localhost"), ranges };
}

/** The words of a configuration file for these places. Pure. */
export function placeWords({ hasPrimary, hasLocalhost, ranges }: NodePortPlaces): string[] {
  return [...(hasPrimary ? ["primary"] : []), ...(hasLocalhost === true ? ["localhost"] : []), ...ranges.map(String)];
}
