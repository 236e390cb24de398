import type { ListenAddress } from "#base/config";
import { type Health, readiness } from "#base/health";
import type { Cidr } from "#base/ip";
import type { Logger } from "#base/log";
import type { Registry } from "#base/metrics";
import type { KubeApi } from "#kube/client";
import { type Endpoint, metricsRoute, serveRoutes } from "./http.ts";
import { metricsLogin } from "./metrics-authorization.ts";

/** Serves `/healthz` (the process answers) and `/readyz` (its parts are ready). Rejects with `HealthServerError`. */
export function serveHealth(
  { health, log }: { readonly health: Health; readonly log: Logger },
  { address }: { readonly address: ListenAddress },
): Promise<Endpoint> {
  const routes = {
    "/healthz": () => ({ body: "ok\n" }),
    "/readyz": ({ query }: { readonly query: URLSearchParams }) => {
      const { isReady, text } = readiness(health, { isVerbose: query.has("verbose") });
      return { status: isReady ? 200 : 503, body: text };
    },
  };
  const notFound = "not found: try /healthz or /readyz";
  return serveRoutes({ routes, log, onBug: complain(log) }, { address, notFound });
}

/**
 * Serves `/metrics` in the Prometheus text format, to the clients of some ranges, or to everybody without any. `api`: is asked with `--metrics-authorization`. Rejects with
 * `HealthServerError`.
 */
export async function serveMetrics(
  {
    registry,
    log,
    api,
  }: { readonly registry: Registry; readonly log: Logger; readonly api?: Pick<KubeApi, "request"> },
  {
    metricsAddr: address,
    metricsFrom,
    metricsAuthorization = false,
  }: {
    readonly metricsAddr: ListenAddress;
    readonly metricsFrom: readonly Cidr[];
    readonly metricsAuthorization?: boolean;
  },
): Promise<Endpoint> {
  const authorize = api === undefined ? undefined : await metricsLogin(metricsAuthorization, { api, log });
  const routes = { "/metrics": metricsRoute(registry) };
  return await serveRoutes(
    { routes, log, onBug: complain(log) },
    { address, notFound: "not found: try /metrics", metricsFrom, authorize },
  );
}

/** A probe that cannot be answered ends no program: its prober sees that. */
function complain(log: Logger): (error: unknown) => void {
  return (error) => log.error("a request for health or metrics could not be answered: a bug", { error: String(error) });
}
