import assert from "node:assert/strict";
import { test } from "node:test";
import { createRegistry } from "#base/metrics";
import { restClientMetrics } from "./rest-client-metrics.ts";

test("restClientMetrics: a request is counted, and its duration is in client-go's buckets by verb and host", async () => {
  const registry = createRegistry();
  const count = restClientMetrics(registry);
  count({ code: "200", method: "GET", host: "a:6443", durationMs: 30 });
  count({ code: "<error>", method: "GET", host: "a:6443", durationMs: 61_000 });
  const lines = (await registry.metrics()).split("\n");
  for (const line of [
    'rest_client_requests_total{code="200",method="GET",host="a:6443"} 1',
    'rest_client_request_duration_seconds_bucket{le="0.025",verb="GET",host="a:6443"} 0',
    'rest_client_request_duration_seconds_bucket{le="0.1",verb="GET",host="a:6443"} 1',
    'rest_client_request_duration_seconds_bucket{le="60",verb="GET",host="a:6443"} 1',
    'rest_client_request_duration_seconds_count{verb="GET",host="a:6443"} 2',
  ])
    assert.ok(
      lines.includes(line),
      `${line} is not in:\n${lines.filter((one) => one.includes("rest_client")).join("\n")}`,
    );
});
