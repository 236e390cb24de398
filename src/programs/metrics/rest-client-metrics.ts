import { Counter, type Registry } from "#base/metrics";
import type { KubeClientOptions } from "#kube/client";

/** Declares the metric of requests to the API server; returns the callback that counts a request. */
export function restClientMetrics(registry: Registry): NonNullable<KubeClientOptions["onRequest"]> {
  const requests = new Counter({
    name: "rest_client_requests_total",
    help: "Requests to the API server. code: the HTTP status, or `<error>` if no answer came.",
    labelNames: ["code", "method", "host"],
    registers: [registry],
  });
  return ({ code, method, host }) => requests.inc({ code, method, host });
}
