import { hostname } from "node:os";
import {
  ConfigError,
  choiceFlag,
  durationFlag,
  type FlagValues,
  ignoredFlag,
  integerFlag,
  optionalFlag,
  parsedFlag,
  stringFlag,
  switchFlag,
} from "#base/config";
import { Cidr } from "#base/ip";
import { kubeFlags } from "../daemon/index.ts";
import { heapSnapshotFlag, metricsAuthorizationFlag, metricsFromFlag } from "../http-endpoints/index.ts";
import { recordFlag } from "../pass-record/index.ts";

/** Name of a Node: an RFC 1123 subdomain. */
const NODE_NAME = /^[a-z0-9]([a-z0-9.-]*[a-z0-9])?$/;
const MAX_NODE_NAME = 253;

/**
 * Flags of kube-proxy 1.36 that mean nothing here. The switches and values of its other modes, of its client of the API, and of its log: ours is a
 * single stream to standard error.
 */
const ignoredFlags = {
  kubeApiContentType: ignoredFlag("kube-api-content-type", { placeholder: "TYPE" }),
  kubeApiQps: ignoredFlag("kube-api-qps", { placeholder: "N" }),
  kubeApiBurst: ignoredFlag("kube-api-burst", { placeholder: "N" }),
  iptablesMasqueradeBit: ignoredFlag("iptables-masquerade-bit", { placeholder: "N", instead: "--masquerade-bit" }),
  iptablesLocalhostNodePorts: ignoredFlag("iptables-localhost-nodeports"),
  iptablesSyncPeriod: ignoredFlag("iptables-sync-period", { placeholder: "DURATION", instead: "--sync-period" }),
  iptablesMinSyncPeriod: ignoredFlag("iptables-min-sync-period", {
    placeholder: "DURATION",
    instead: "--min-sync-period",
  }),
  ipvsSyncPeriod: ignoredFlag("ipvs-sync-period", { placeholder: "DURATION", instead: "--sync-period" }),
  ipvsMinSyncPeriod: ignoredFlag("ipvs-min-sync-period", { placeholder: "DURATION", instead: "--min-sync-period" }),
  ipvsScheduler: ignoredFlag("ipvs-scheduler", { placeholder: "NAME" }),
  ipvsExcludeCidrs: ignoredFlag("ipvs-exclude-cidrs", { placeholder: "CIDRS" }),
  ipvsStrictArp: ignoredFlag("ipvs-strict-arp"),
  ipvsTcpTimeout: ignoredFlag("ipvs-tcp-timeout", { placeholder: "DURATION" }),
  ipvsTcpFinTimeout: ignoredFlag("ipvs-tcpfin-timeout", { placeholder: "DURATION" }),
  ipvsUdpTimeout: ignoredFlag("ipvs-udp-timeout", { placeholder: "DURATION" }),
  healthzPort: ignoredFlag("healthz-port", { placeholder: "PORT", instead: "--healthz-bind-address" }),
  metricsPort: ignoredFlag("metrics-port", { placeholder: "PORT", instead: "--metrics-bind-address" }),
  bootIdFile: ignoredFlag("boot-id-file", { placeholder: "FILES" }),
  machineIdFile: ignoredFlag("machine-id-file", { placeholder: "FILES" }),
  vmodule: ignoredFlag("vmodule", { placeholder: "PATTERN=N,...", instead: "--v" }),
  logFlushFrequency: ignoredFlag("log-flush-frequency", { placeholder: "DURATION" }),
  logTextSplitStream: ignoredFlag("log-text-split-stream"),
  logTextInfoBufferSize: ignoredFlag("log-text-info-buffer-size", { placeholder: "SIZE" }),
  logJsonSplitStream: ignoredFlag("log-json-split-stream"),
  logJsonInfoBufferSize: ignoredFlag("log-json-info-buffer-size", { placeholder: "SIZE" }),
};

/**
 * The flags of `service-proxy`: those of kube-proxy, with its names and defaults (docs/spec/service-proxy.md#2.10), then additional ones.
 */
export const serviceProxyFlags = {
  config: optionalFlag(
    "config",
    "KubeProxyConfiguration (kubeproxy.config.k8s.io/v1alpha1), instead of most flags",
    "FILE",
  ),
  writeConfigTo: optionalFlag("write-config-to", "write the configuration in force to a file, and exit", "FILE"),
  ...kubeFlags,
  master: optionalFlag("master", "URL of the API server; overrides the kubeconfig's", "URL"),
  hostnameOverride: stringFlag(
    "hostname-override",
    "",
    "name of this Node; default: the host's name in lower case",
    "NAME",
  ),
  bindAddress: stringFlag(
    "bind-address",
    "0.0.0.0",
    "overrides the node's primary address; nothing is bound to it",
    "ADDRESS",
  ),
  healthzBindAddress: stringFlag(
    "healthz-bind-address",
    "0.0.0.0:10256",
    "address of /healthz and /livez; empty: none",
    "ADDRESS",
  ),
  metricsBindAddress: stringFlag(
    "metrics-bind-address",
    "127.0.0.1:10249",
    "address of /metrics; empty: none",
    "ADDRESS",
  ),
  bindAddressHardFail: switchFlag("bind-address-hard-fail", false, "end if one of these addresses cannot be bound"),
  proxyMode: choiceFlag("proxy-mode", ["nftables"], "nftables", "how packets are forwarded"),
  syncPeriod: durationFlag(
    "sync-period",
    "30s",
    "pause after failures; /healthz fails when a change waits for more than twice this time",
    {
      min: "1ms",
      max: "24h",
    },
  ),
  minSyncPeriod: durationFlag("min-sync-period", "1s", "average pause after a sync", { max: "24h" }),
  configSyncPeriod: durationFlag("config-sync-period", "15m", "no effect; watches need no resync"),
  masqueradeBit: integerFlag("masquerade-bit", 14, "bit of the packet mark that is used", { min: 0, max: 31 }),
  masqueradeAll: switchFlag("masquerade-all", false, "masquerade all connections to cluster IPs"),
  nodePortAddresses: stringFlag(
    "nodeport-addresses",
    "primary",
    "addresses that take NodePorts: CIDRs, primary, localhost and all, in any mixture",
    "WORDS",
  ),
  detectLocalMode: choiceFlag(
    "detect-local-mode",
    ["ClusterCIDR", "NodeCIDR", "BridgeInterface", "InterfaceNamePrefix"],
    "ClusterCIDR",
    "how packets of pods are recognized",
  ),
  clusterCIDR: stringFlag("cluster-cidr", "", "the pods' addresses, one range for each family", "CIDRS"),
  podBridgeInterface: stringFlag(
    "pod-bridge-interface",
    "",
    "bridge interface of the pods; used with --detect-local-mode=BridgeInterface",
    "NAME",
  ),
  podInterfaceNamePrefix: stringFlag(
    "pod-interface-name-prefix",
    "",
    "prefix of pods' interfaces, with InterfaceNamePrefix",
    "PREFIX",
  ),
  featureGates: stringFlag(
    "feature-gates",
    "",
    "KubeProxyDrainingTerminatingNodes, AllowServiceExternalIPs: NAME=true|false,...",
    "GATES",
  ),
  conntrackMaxPerCore: integerFlag(
    "conntrack-max-per-core",
    32_768,
    "maximum of tracked connections for each core; 0: not changed",
    { min: 0, max: 10_000_000 },
  ),
  conntrackMin: integerFlag("conntrack-min", 131_072, "lower limit of the maximum of tracked connections", {
    min: 0,
    max: 100_000_000,
  }),
  conntrackTcpEstablished: durationFlag("conntrack-tcp-timeout-established", "24h", "0: not changed"),
  conntrackTcpCloseWait: durationFlag("conntrack-tcp-timeout-close-wait", "1h", "0: not changed"),
  conntrackTcpBeLiberal: switchFlag(
    "conntrack-tcp-be-liberal",
    false,
    "do not treat TCP packets outside the window as invalid",
  ),
  conntrackUdp: durationFlag("conntrack-udp-timeout", "0s", "0: not changed"),
  conntrackUdpStream: durationFlag("conntrack-udp-timeout-stream", "0s", "0: not changed"),
  oomScoreAdj: integerFlag("oom-score-adj", -999, "OOM score of this process", { min: -1000, max: 1000 }),
  profiling: switchFlag("profiling", false, "serve profiles under /debug/pprof of the metrics address"),
  ...metricsFromFlag,
  ...metricsAuthorizationFlag,
  ...heapSnapshotFlag,
  ...recordFlag,
  initOnly: switchFlag("init-only", false, "set kernel parameters, and exit"),
  cleanup: switchFlag("cleanup", false, "remove the tables of this proxy, and exit"),
  showHiddenMetrics: stringFlag("show-hidden-metrics-for-version", "", "no effect; no metric is hidden", "VERSION"),
  tableName: stringFlag(
    "table-name",
    "kube-proxy",
    "name of the nftables tables; several proxies need different ones",
    "NAME",
  ),
  serviceAddresses: choiceFlag(
    "service-addresses",
    ["kube-proxy", "guarded", "strict"],
    "guarded",
    "the externalIPs and load balancer addresses that Services get: guarded refuses those of others, strict also this node's, kube-proxy none but loopback",
  ),
  hostPorts: stringFlag(
    "host-ports",
    "",
    "further ports of nodes' addresses that no Service gets, such as 3389,8000-8100; see the guide for those that are always kept",
    "PORTS",
  ),
  startupHealth: choiceFlag(
    "startup-health",
    ["strict", "compatible"],
    "strict",
    "strict: not healthy before the first sync",
  ),
  drainingTaintKeys: stringFlag(
    "draining-taint-keys",
    "ToBeDeletedByClusterAutoscaler",
    "taints that make load balancers drain this node",
    "KEYS",
  ),
  netns: optionalFlag("netns", "the network namespace to configure, instead of the process's own", "PATH"),
  verbosity: parsedFlag("v", parseVerbosity, "verbosity, as in klog: 2 and more is debug", "N"),
  loggingFormat: choiceFlag("logging-format", ["text", "json"], "text", "format of the log"),
  ...ignoredFlags,
};

/** The parsed values of {@link serviceProxyFlags}. */
export type ServiceProxyValues = FlagValues<typeof serviceProxyFlags>;

/** Feature gates of this program. */
export interface FeatureGates {
  readonly drainingTerminatingNodes: boolean;
  readonly allowServiceExternalIPs: boolean;
}

const GATES = {
  KubeProxyDrainingTerminatingNodes: "drainingTerminatingNodes",
  AllowServiceExternalIPs: "allowServiceExternalIPs",
} as const;

/** Parses `NAME=true,NAME=false`. Unknown gates are returned, not refused. Throws `ConfigError`. */
export function parseFeatureGates(
  pairs: Iterable<readonly [string, boolean | string]>,
): FeatureGates & { readonly unknown: readonly string[] } {
  const gates = { drainingTerminatingNodes: true, allowServiceExternalIPs: true };
  const unknown: string[] = [];
  for (const [name, value] of pairs) {
    const key = Object.hasOwn(GATES, name) ? GATES[name as keyof typeof GATES] : undefined;
    const text = String(value);
    if (text !== "true" && text !== "false") {
      throw new ConfigError("invalid-flags", [`--feature-gates: ${name}=${text} is neither true nor false`]);
    }
    if (key === undefined) unknown.push(name);
    else gates[key] = text === "true";
  }
  return { ...gates, unknown };
}

/** The pairs of `NAME=value,...`. Throws `ConfigError`. */
export function gatePairs(text: string): (readonly [string, string])[] {
  return splitList(text).map((pair) => {
    const [name = "", value, ...rest] = pair.split("=");
    if (name === "" || value === undefined || rest.length > 0) {
      throw new ConfigError("invalid-flags", [`--feature-gates: "${pair}" is not NAME=true or NAME=false`]);
    }
    return [name, value];
  });
}

/** Parses CIDRs. Throws `ConfigError`, which names the flag and the first invalid CIDR. */
export function parseCidrList(flag: string, texts: readonly string[]): Cidr[] {
  return texts.map((text) => {
    const cidr = Cidr.tryParse(text);
    if (cidr === undefined)
      throw new ConfigError("invalid-flags", [`--${flag}: "${text}" is not a CIDR; an example is 10.0.0.0/8`]);
    return cidr;
  });
}

/** Splits at commas and trims blanks. */
export function splitList(text: string): string[] {
  return text
    .split(",")
    .map((word) => word.trim())
    .filter((word) => word !== "");
}

/** The name of the Node, derived as by kubelet. Throws `ConfigError` for an empty name, and for an invalid override. */
export function nodeNameOf(override: string): string {
  const name = (override === "" ? hostname() : override).trim().toLowerCase();
  if (name === "") throw new ConfigError("invalid-flags", ["--hostname-override: the name of the Node is empty"]);
  if (override !== "" && !(name.length <= MAX_NODE_NAME && NODE_NAME.test(name))) {
    const why = `a name has letters, digits, "-" and ".", at most ${MAX_NODE_NAME}, with a letter or digit at both ends`;
    throw new ConfigError("invalid-flags", [`--hostname-override: "${shown(name)}" cannot be a Node's name: ${why}`]);
  }
  return name;
}

function shown(text: string): string {
  return text.length > 80 ? `${text.slice(0, 80)}…` : text;
}

function parseVerbosity(text: string): number {
  if (/^\d{1,3}$/.test(text)) return Number(text);
  throw new ConfigError("invalid-value", [`"${text}" is not a number`]);
}
