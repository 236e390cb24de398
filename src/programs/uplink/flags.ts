import type { Clock } from "#base/clock";
import { ConfigError, choiceFlag, optionalFlag, stringFlag, switchFlag } from "#base/config";
import type { Logger } from "#base/log";
import { type ConfigSource, EveInputs, OFF_SWITCH, SENTINEL_PATH, SettingsFile } from "#features/uplink";
import { logFlags } from "../daemon-flags.ts";

/** The flags of `uplink-proxy`. */
export const uplinkFlags = {
  config: optionalFlag("config", "the settings, JSON or YAML", "FILE"),
  statusFile: optionalFlag("status-file", "EVE's DeviceNetworkStatus, instead of --config", "FILE"),
  globalConfigFile: optionalFlag("global-config-file", "EVE's ConfigItemValueMap, with --status-file", "FILE"),
  parts: choiceFlag(
    "parts",
    ["all", "proxy", "routing"],
    "all",
    "what this process does; two processes can share the work",
  ),
  flush: switchFlag("flush", false, "remove all that was made in the kernel, and exit"),
  controlSocket: stringFlag(
    "control-socket",
    "/run/uplink-proxy/control.sock",
    "UNIX socket where agents tell of uplinks; empty: none",
    "PATH",
  ),
  runDir: stringFlag(
    "run-dir",
    "/run",
    "below it the counters are published: mgmtproxy/MetricsMap/global.json",
    "FOLDER",
  ),
  secretsDir: stringFlag(
    "secrets-dir",
    "/var/lib/uplink-proxy",
    "token and certificate of the listener for pods",
    "FOLDER",
  ),
  offSwitch: stringFlag("off-switch", OFF_SWITCH, "a file that ends the transparent mode while it is there", "FILE"),
  sentinel: stringFlag(
    "sentinel",
    SENTINEL_PATH,
    "the record of the container runtime's environment, for `env.stale`",
    "FILE",
  ),
  ...logFlags,
};

interface InputValues {
  readonly config: string | undefined;
  readonly statusFile: string | undefined;
  readonly globalConfigFile: string | undefined;
}

/** Where the settings come from. Throws `ConfigError` when the flags do not say it, or say it twice. */
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
  return new EveInputs(deps, { statusFile, globalConfigFile });
}
