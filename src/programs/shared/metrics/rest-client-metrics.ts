import { Counter, Histogram, type Registry } from "#base/metrics";
import type { KubeClientOptions } from "#kube/client";

/** client-go's buckets of request durations, in seconds. */
const SECONDS = [0.005, 0.025, 0.1, 0.25, 0.5, 1, 2, 4, 8, 15, 30, 60];

/** Declares the metrics of requests to the API server, with client-go's names; returns the callback that counts a request. */
export function restClientMetrics(registry: Registry): NonNullable<KubeClientOptions["onRequest"]> {
  const requests = new Counter({
    name: "rest_client_requests_total",
    help: "Requests to the API server. code: the HTTP status, or `<error>` if no answer came.",
    labelNames: ["code", "method", "host"],
    registers: [registry],
  });
  const durations = new Histogram({
    name: "rest_client_request_duration_seconds",
    help: "Time from a request to the API server to the head of its answer, or to the failure. verb: the HTTP method.",
    labelNames: ["verb", "host"],
    buckets: SECONDS,
    registers: [registry],
  });
  return ({ code, method, host, durationMs }) => {
    requests.inc({ code, method, host });
    durations.observe({ verb: method, host }, durationMs / 1000);
  };
}
