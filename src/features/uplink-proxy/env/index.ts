/**
 * The environment that puts programs behind the proxy: the two variables, the off-switch, the record of the variables that a runtime
 * was started with, and the proxied `kubectl apply` (docs/spec/uplink-proxy.md#10 and #11).
 *
 * Owns: the texts of all of these, byte for byte. Does not know: the proxy itself.
 *
 * ```ts
 * const { isEnabled } = await readOffSwitch(OFF_SWITCH, { log });
 * const env = isEnabled ? proxyEnvironment({ nodeIP }) : {};
 * ```
 */

export { EnvironmentWatch } from "./environment-watch.ts";
export { kubectlApply } from "./kubectl-apply.ts";
export { runCommand, runningPid, startDetached, writePid } from "./launch.ts";
export { OFF_SWITCH, readOffSwitch } from "./off-switch.ts";
export {
  DEFAULT_POD_CIDRS,
  DEFAULT_SERVICE_CIDRS,
  type EnvironmentOptions,
  noProxy,
  PROXY_URL,
  proxyEnvironment,
} from "./proxy-environment.ts";
export { formatSentinel, isStale, parseSentinel, readSentinel, SENTINEL_PATH, writeSentinel } from "./sentinel.ts";
export { watchStaleness } from "./stale-watch.ts";
export { systemdDropIn } from "./systemd.ts";
