import { addressFlag } from "#base/config";
import { metricsAuthorizationFlag, metricsFromFlag } from "../http-endpoints/index.ts";

/** The addresses of a daemon's metrics and probes; `metrics` and `health` are the defaults, such as `:9384`. */
export const endpointFlags = (metrics: string, health: string) => ({
  metricsAddr: addressFlag("metrics-addr", metrics, "listen address of /metrics"),
  ...metricsFromFlag,
  ...metricsAuthorizationFlag,
  healthAddr: addressFlag("health-addr", health, "listen address of /healthz and /readyz"),
});
