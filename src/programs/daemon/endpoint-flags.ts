import { addressFlag } from "#base/config";
import { metricsFromFlag } from "../http-endpoints/index.ts";

/** The addresses of a daemon's metrics and probes; `metrics` and `health` are the defaults, such as `:9384`. */
export const endpointFlags = (metrics: string, health: string) => ({
  metricsAddr: addressFlag("metrics-addr", metrics, "listen address of /metrics"),
  ...metricsFromFlag,
  healthAddr: addressFlag("health-addr", health, "listen address of /healthz and /readyz"),
});
