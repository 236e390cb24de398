import type { Clock } from "#base/clock";
import { ConfigError, choiceFlag, optionalFlag, parsedFlag, stringFlag, switchFlag } from "#base/config";
import { IpAddress } from "#base/ip";
import type { Logger } from "#base/log";
import { type ConfigSource, DEFAULT_SETTINGS, type ListenerSettings, type Settings } from "#base/uplink-model";
import { EveInputs, SettingsFile } from "#features/uplink-config";
import { OFF_SWITCH, SENTINEL_PATH } from "#features/uplink-proxy";
import { kubeFlags, logFlags } from "../../shared/daemon/index.ts";

/** The flags of `uplink-proxy`. */
export const uplinkFlags = {
  config: optionalFlag("config", "the settings, JSON or YAML", "FILE"),
  statusFile: optionalFlag("status-file", "EVE's DeviceNetworkStatus, instead of --config", "FILE"),
  globalConfigFile: optionalFlag("global-config-file", "EVE's ConfigItemValueMap, with --status-file", "FILE"),
  parts: choiceFlag(
    "parts",
    ["all", "proxy", "routing"],
    "all",
    "the parts that this process runs; two processes can share the work",
  ),
  streams: choiceFlag(
    "streams",
    ["auto", "epoll", "node"],
    "auto",
    "how TCP connections are made; auto: over epoll, or with Node.js's sockets if the runtime does not support epoll",
  ),
  flush: switchFlag("flush", false, "remove all kernel objects of uplink-proxy, and exit"),
  controlSocket: stringFlag(
    "control-socket",
    "/run/uplink-proxy/control.sock",
    "UNIX socket where agents report the status of uplinks; empty: none",
    "PATH",
  ),
  runDir: stringFlag(
    "run-dir",
    "/run",
    "folder of the published counters (its file mgmtproxy/MetricsMap/global.json)",
    "FOLDER",
  ),
  secretsDir: stringFlag(
    "secrets-dir",
    "/var/lib/uplink-proxy",
    "folder of the token and certificate of the listener for pods",
    "FOLDER",
  ),
  offSwitch: stringFlag("off-switch", OFF_SWITCH, "the transparent mode is off while this file exists", "FILE"),
  sentinel: stringFlag(
    "sentinel",
    SENTINEL_PATH,
    "the record of the container runtime's environment variables, for `env.stale`",
    "FILE",
  ),
  podListener: switchFlag(
    "pod-listener",
    false,
    "on EVE: also listen for pods, at 169.254.100.1 on cni0; on other systems, configure listeners in the file of --config",
  ),
  clusterSecretFile: optionalFlag(
    "cluster-secret-file",
    "a secret that all nodes share, 32 random bytes or more: token and certificate are derived from it",
    "FILE",
  ),
  clusterSecret: parsedFlag(
    "cluster-secret",
    parseSecretName,
    "the shared secret, 32 random bytes or more, is the key `secret` of this Secret of the API server",
    "NAMESPACE/NAME",
  ),
  cdi: switchFlag(
    "cdi",
    false,
    "set the listener for pods as importProxy of the CDI object, for KubeVirt's image importers",
  ),
  ...kubeFlags,
  ...logFlags,
};

function parseSecretName(text: string): readonly [namespace: string, name: string] {
  const [namespace = "", name = "", ...rest] = text.split("/");
  if (namespace === "" || name === "" || rest.length > 0) {
    throw new ConfigError("invalid-value", [`"${text}" is not NAMESPACE/NAME`]);
  }
  return [namespace, name];
}

interface InputValues {
  readonly config: string | undefined;
  readonly statusFile: string | undefined;
  readonly globalConfigFile: string | undefined;
  readonly podListener: boolean;
}

/** Opens the source of the settings. Throws `ConfigError` if the flags give no source, or two sources. */
export function openConfig(values: InputValues, deps: { readonly log: Logger; readonly clock: Clock }): ConfigSource {
  const { config, statusFile, globalConfigFile } = values;
  if (config !== undefined && (statusFile ?? globalConfigFile) !== undefined) {
    throw new ConfigError("invalid-flags", ["--config and EVE's files cannot both be given"]);
  }
  if (config !== undefined) return new SettingsFile(deps, { path: config });
  if (statusFile === undefined || globalConfigFile === undefined) {
    throw new ConfigError("invalid-flags", [
      "no settings: give --config FILE, or on EVE both --status-file FILE and --global-config-file FILE",
    ]);
  }
  const base = values.podListener ? { base: withPodListener(DEFAULT_SETTINGS) } : {};
  return new EveInputs(deps, { statusFile, globalConfigFile, ...base });
}

/** EVE's listener for importer pods (docs/spec/uplink-proxy.md#4). */
function withPodListener(settings: Settings): Settings {
  const pods: ListenerSettings = {
    name: "pods",
    role: "pod",
    address: IpAddress.parse("169.254.100.1"),
    port: 5443,
    interface: "cni0",
    assignAddress: true,
    auth: "token",
    tls: "optional",
    allowedPorts: [443, 5000, 8443],
  };
  return { ...settings, listeners: [...settings.listeners, pods] };
}
