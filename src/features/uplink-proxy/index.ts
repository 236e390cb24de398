/**
 * The uplink proxy: each connection leaves through the cheapest uplink that works (docs/spec/uplink-proxy.md).
 *
 * Owns: listeners, the choice of an uplink for each connection, the tunnels, and the environment that puts programs behind the proxy.
 * Does not know: where snapshots and settings come from, and routing.
 *
 * ```ts
 * const proxy = new UplinkProxy({ snapshots, evidence, clock, log }, settings, { version });
 * await proxy.run({ signal });
 * ```
 */
export { runCdiSync } from "./cdi/index.ts";
export {
  DEFAULT_POD_CIDRS,
  DEFAULT_SERVICE_CIDRS,
  type EnvironmentOptions,
  EnvironmentWatch,
  kubectlApply,
  OFF_SWITCH,
  PROXY_URL,
  proxyEnvironment,
  readOffSwitch,
  runCommand,
  runningPid,
  SENTINEL_PATH,
  startDetached,
  systemdDropIn,
  watchStaleness,
  writePid,
  writeSentinel,
} from "./env/index.ts";
export { PodAccess, secretFromApi, secretFromFile, withLateClient } from "./pods/index.ts";
export type { ClusterSecret } from "./policy/index.ts";
export { HealthParts, UplinkProxy } from "./proxy/index.ts";
export { METRICS_MAP_PATH, readMetricsFile, statsText, uplinkProxyMetrics } from "./stats/index.ts";
export { startWorkers } from "./workers/index.ts";
