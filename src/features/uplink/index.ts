/**
 * The uplink proxy: downloads leave through the cheapest uplink that works (docs/spec/uplink-proxy.md).
 *
 * Owns: per-uplink routing, the choice of an uplink for each connection, the tunnels, the environment that puts programs behind
 * them. Refuses to know: flags and files of a program's own.
 *
 * ```ts
 * const { HTTPS_PROXY, NO_PROXY } = proxyEnvironment({ nodeIP });
 * ```
 */

export * from "./cdi/index.ts";
export { type ConfigSource, DEFAULT_SETTINGS, EveInputs, SettingsFile } from "./config/index.ts";
export * from "./env/index.ts";
export {
  BEAT,
  GOODBYE,
  ownMark,
  removeTransparent,
  runTransparentWatchdog,
  TransparentKeeper,
  type TransparentMarks,
  type Watchdog,
} from "./guard/index.ts";
export { hasError, type ListenerSettings, type Settings, type Snapshot, type Uplink } from "./model/index.ts";
export { type ClusterSecret, Secrets, type SecretsDeps } from "./policy/index.ts";
export { type PodSecrets, UplinkProxy } from "./proxy/index.ts";
export { METRICS_MAP_PATH, type MetricsDocument, statsText } from "./stats/index.ts";
export { flushKernel, REACH_REPORT_PATH, Uplinkd } from "./uplinkd/index.ts";
