import { createHash } from "node:crypto";
import * as v from "valibot";
import { ConfigError, formatDuration, parseDuration } from "#base/config";
import { FileError, readBounded } from "#base/file";
import { parseYaml, YamlError } from "#base/yaml";
import { type ServiceProxyValues, serviceProxyFlags } from "./flags.ts";

/** The address in a file that disables a listener. An empty address, which kubeadm writes, means the default there. */
export const NO_LISTENER = "none";

/** Maximum number of unknown keys that are logged individually. */
const MAX_NOTES = 20;
const DAY_MS = 86_400_000;
/** The longest timeout that all kernel parameters accept, in milliseconds: 2^31 - 1 seconds. */
const MAX_TIMEOUT_MS = 2_147_483_647_000;

/** Schema of a duration, parsed to milliseconds. Go programs write a duration as text or as a number of nanoseconds. */
const duration = (maxMs: number) =>
  v.pipe(
    v.union([v.string(), v.number()], "must be a duration, such as 30s"),
    v.rawTransform(({ dataset, addIssue, NEVER }) => {
      const ms = milliseconds(dataset.value);
      if (ms === undefined) addIssue({ message: `"${dataset.value}" is not a duration; an example is 30s` });
      else if (ms > maxMs)
        addIssue({ message: `"${dataset.value}" is too long: the maximum is ${formatDuration(maxMs)}` });
      else return ms;
      return NEVER;
    }),
  );

function milliseconds(value: string | number): number | undefined {
  if (typeof value === "number") return Number.isFinite(value) && value >= 0 ? value / 1e6 : undefined;
  try {
    return parseDuration(value);
  } catch (error) {
    if (!(error instanceof ConfigError)) throw error;
    return undefined;
  }
}

const integer = (min: number, max: number) =>
  v.pipe(
    v.number("must be a number"),
    v.check((value) => Number.isInteger(value) && value >= min && value <= max, `must be an integer, ${min} to ${max}`),
  );
const text = v.nullish(v.string("must be text"));
const flag = v.nullish(v.boolean("must be true or false"));
/** Schema of a mapping. Like Go programs, it reads `null` as an absent value. */
const section = <const Entries extends v.ObjectEntries>(entries: Entries) =>
  v.nullish(
    v.pipe(
      v.unknown(),
      // In JavaScript a list is an object too.
      v.check((value) => !Array.isArray(value), "must be a mapping"),
      v.looseObject(entries, "must be a mapping"),
    ),
  );

const nftables = {
  masqueradeBit: v.nullish(integer(0, 31)),
  masqueradeAll: flag,
  syncPeriod: v.nullish(duration(DAY_MS)),
  minSyncPeriod: v.nullish(duration(DAY_MS)),
};
const conntrack = {
  maxPerCore: v.nullish(integer(0, 10_000_000)),
  min: v.nullish(integer(0, 100_000_000)),
  tcpEstablishedTimeout: v.nullish(duration(MAX_TIMEOUT_MS)),
  tcpCloseWaitTimeout: v.nullish(duration(MAX_TIMEOUT_MS)),
  tcpBeLiberal: flag,
  udpTimeout: v.nullish(duration(MAX_TIMEOUT_MS)),
  udpStreamTimeout: v.nullish(duration(MAX_TIMEOUT_MS)),
};
const detectLocal = { bridgeInterface: text, interfaceNamePrefix: text };
const MODES = ["", ...["ClusterCIDR", "NodeCIDR", "BridgeInterface", "InterfaceNamePrefix"]] as const;
const file = v.looseObject(
  {
    apiVersion: v.literal("kubeproxy.config.k8s.io/v1alpha1", 'must be "kubeproxy.config.k8s.io/v1alpha1"'),
    kind: v.literal("KubeProxyConfiguration", 'must be "KubeProxyConfiguration"'),
    featureGates: v.nullish(v.record(v.string(), v.boolean("must be true or false"), "must be a mapping")),
    clientConnection: section({ kubeconfig: text }),
    hostnameOverride: text,
    bindAddress: text,
    healthzBindAddress: text,
    metricsBindAddress: text,
    bindAddressHardFail: flag,
    enableProfiling: flag,
    mode: v.nullish(v.picklist(["", "nftables"], 'must be "nftables" or empty')),
    configSyncPeriod: v.nullish(duration(MAX_TIMEOUT_MS)),
    nftables: section(nftables),
    detectLocalMode: v.nullish(v.picklist(MODES, `must be one of ${MODES.slice(1).join(", ")}, or empty`)),
    detectLocal: section(detectLocal),
    clusterCIDR: text,
    nodePortAddresses: v.nullish(v.array(v.string("must be text"), "must be a list")),
    oomScoreAdj: v.nullish(integer(-1000, 1000)),
    conntrack: section(conntrack),
  },
  "must be a mapping",
);

/** Content of a file; durations in milliseconds. */
export type FileContent = v.InferOutput<typeof file>;

/** Reads a configuration file. Throws `ConfigError` with every fault. `notes` name unknown keys; `digest`: see {@link digestOf}. */
export function readConfigFile(path: string): {
  readonly content: FileContent;
  readonly notes: readonly string[];
  readonly digest: string;
} {
  let text: string;
  try {
    text = readBounded(path);
  } catch (error) {
    if (!(error instanceof FileError)) throw error;
    throw new ConfigError("invalid-flags", [`--config: ${error.message}`]);
  }
  const content = parseFile(path, text);
  const unknown = unknownKeys(content);
  const notes = unknown.slice(0, MAX_NOTES).map((key) => `${path}: ${key} has no effect in this proxy`);
  if (unknown.length > MAX_NOTES)
    notes.push(`${path}: ${unknown.length - MAX_NOTES} other keys have no effect in this proxy`);
  return { content, notes, digest: digestOf(text) };
}

/** SHA-256 of a file's text, hexadecimal, to detect changes. */
export function digestOf(text: string): string {
  return createHash("sha256").update(text).digest("hex");
}

/** Parses the content of a configuration file. Throws `ConfigError`. */
export function parseFile(path: string, content: string): FileContent {
  let value: unknown;
  try {
    value = parseYaml(content, { aliases: true, version: "1.1" }).value;
  } catch (error) {
    if (!(error instanceof YamlError)) throw error;
    throw new ConfigError("invalid-flags", [`--config: ${path} is neither YAML nor JSON: ${error.message}`]);
  }
  const parsed = v.safeParse(file, value);
  if (parsed.success) return parsed.output;
  throw new ConfigError(
    "invalid-flags",
    parsed.issues.map((issue) => `--config: ${path}: ${v.getDotPath(issue) ?? "the document"}: ${issue.message}`),
  );
}

const SECTION_ENTRIES = { nftables, conntrack, detectLocal };

function unknownKeys(content: FileContent): string[] {
  const own = Object.keys(content).filter((key) => !Object.hasOwn(file.entries, key));
  const inner = Object.entries(SECTION_ENTRIES).flatMap(([name, entries]) =>
    Object.keys(content[name as keyof typeof SECTION_ENTRIES] ?? {})
      .filter((key) => !Object.hasOwn(entries, key))
      .map((key) => `${name}.${key}`),
  );
  return [...own, ...inner];
}

/**
 * The flags' values, replaced by the file's, except those for logging and the node's name (docs/spec/service-proxy.md#2.10). An absent or
 * empty field means kube-proxy's default, and so does a period of 0.
 */
export function overridden(values: ServiceProxyValues, content: FileContent): ServiceProxyValues {
  const nft = content.nftables ?? {};
  const tracking = content.conntrack ?? {};
  const mode = content.detectLocalMode ?? "";
  return {
    ...values,
    syncPeriod: nft.syncPeriod || serviceProxyFlags.syncPeriod.initial,
    minSyncPeriod: nft.minSyncPeriod || serviceProxyFlags.minSyncPeriod.initial,
    kubeconfig: nonEmpty(content.clientConnection?.kubeconfig) ?? values.kubeconfig,
    hostnameOverride: nonEmpty(values.hostnameOverride) ?? content.hostnameOverride ?? "",
    bindAddress: nonEmpty(content.bindAddress) ?? serviceProxyFlags.bindAddress.initial,
    healthzBindAddress: listener(content.healthzBindAddress) ?? serviceProxyFlags.healthzBindAddress.initial,
    metricsBindAddress: listener(content.metricsBindAddress) ?? serviceProxyFlags.metricsBindAddress.initial,
    bindAddressHardFail: content.bindAddressHardFail ?? false,
    profiling: content.enableProfiling ?? false,
    masqueradeBit: nft.masqueradeBit ?? serviceProxyFlags.masqueradeBit.initial,
    masqueradeAll: nft.masqueradeAll ?? false,
    detectLocalMode: mode === "" ? serviceProxyFlags.detectLocalMode.initial : mode,
    clusterCIDR: content.clusterCIDR ?? "",
    podBridgeInterface: content.detectLocal?.bridgeInterface ?? "",
    podInterfaceNamePrefix: content.detectLocal?.interfaceNamePrefix ?? "",
    nodePortAddresses: (content.nodePortAddresses ?? []).join(","),
    oomScoreAdj: content.oomScoreAdj ?? serviceProxyFlags.oomScoreAdj.initial,
    featureGates: Object.entries(content.featureGates ?? {})
      .map(([name, on]) => `${name}=${on}`)
      .join(","),
    conntrackMaxPerCore: tracking.maxPerCore ?? serviceProxyFlags.conntrackMaxPerCore.initial,
    conntrackMin: tracking.min ?? serviceProxyFlags.conntrackMin.initial,
    conntrackTcpEstablished: tracking.tcpEstablishedTimeout ?? serviceProxyFlags.conntrackTcpEstablished.initial,
    conntrackTcpCloseWait: tracking.tcpCloseWaitTimeout ?? serviceProxyFlags.conntrackTcpCloseWait.initial,
    conntrackTcpBeLiberal: tracking.tcpBeLiberal ?? false,
    conntrackUdp: tracking.udpTimeout ?? serviceProxyFlags.conntrackUdp.initial,
    conntrackUdpStream: tracking.udpStreamTimeout ?? serviceProxyFlags.conntrackUdpStream.initial,
  };
}

/**
 * Names of the flags that a file overrides, whether it has their fields or not, in the order of {@link serviceProxyFlags}. A kubeconfig in flags
 * holds where the file has none, and `--hostname-override` always. Pure.
 */
export function overriddenFlags(content: FileContent): readonly string[] {
  const kept: ReadonlySet<string> = new Set(nonEmpty(content.clientConnection?.kubeconfig) ? [] : ["kubeconfig"]);
  return Object.entries(serviceProxyFlags)
    .filter(([key, { name }]) => OVERRIDDEN.has(key) && !kept.has(name))
    .map(([, { name }]) => name);
}

/** Keys of the flags that {@link overridden} replaces; `hostnameOverride` wins over the file. */
const OVERRIDDEN: ReadonlySet<string> = new Set<keyof ServiceProxyValues>([
  "syncPeriod",
  "minSyncPeriod",
  "configSyncPeriod",
  "kubeconfig",
  "bindAddress",
  "healthzBindAddress",
  "metricsBindAddress",
  "bindAddressHardFail",
  "profiling",
  "proxyMode",
  "masqueradeBit",
  "masqueradeAll",
  "detectLocalMode",
  "clusterCIDR",
  "podBridgeInterface",
  "podInterfaceNamePrefix",
  "nodePortAddresses",
  "oomScoreAdj",
  "featureGates",
  "conntrackMaxPerCore",
  "conntrackMin",
  "conntrackTcpEstablished",
  "conntrackTcpCloseWait",
  "conntrackTcpBeLiberal",
  "conntrackUdp",
  "conntrackUdpStream",
  "showHiddenMetrics",
]);

/** Fields of the file by flag. */
const FIELDS: Readonly<Record<string, string>> = {
  "hostname-override": "hostnameOverride",
  "bind-address": "bindAddress",
  "healthz-bind-address": "healthzBindAddress",
  "metrics-bind-address": "metricsBindAddress",
  "sync-period": "nftables.syncPeriod",
  "min-sync-period": "nftables.minSyncPeriod",
  "nodeport-addresses": "nodePortAddresses",
  "detect-local-mode": "detectLocalMode",
  "cluster-cidr": "clusterCIDR",
  "pod-bridge-interface": "detectLocal.bridgeInterface",
  "pod-interface-name-prefix": "detectLocal.interfaceNamePrefix",
  "feature-gates": "featureGates",
};

/** Names the file's fields in a fault that names flags. Pure. */
export function faultInFile(path: string, fault: string): string {
  const inFile = fault.replaceAll(/--([a-z-]+)/g, (whole, name: string) => FIELDS[name] ?? whole);
  return inFile === fault ? fault : `--config: ${path}: ${inFile}`;
}

function listener(address: string | null | undefined): string | undefined {
  return address === NO_LISTENER ? "" : nonEmpty(address);
}

function nonEmpty(value: string | null | undefined): string | undefined {
  return value === "" || value === null ? undefined : value;
}
