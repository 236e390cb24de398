import assert from "node:assert/strict";
import { test } from "node:test";
import { Registry } from "#base/metrics";
import { BufferBudget } from "#features/tunnel";
import { describedMetrics, PREFIX } from "../../shared/tunnel/testing/described-metrics.ts";
import { agentMetrics } from "./metrics.ts";

test("agentMetrics: names, types, labels and buckets are Konnectivity's, with our own", async () => {
  const registry = new Registry();
  const budget = new BufferBudget(100);
  agentMetrics(registry).observe({ budget });
  const latency = "0.005 0.025 0.1 0.5 2.5 10 30";
  assert.deepEqual(await describedMetrics(registry), [
    "counter|agent_endpoint_dial_failure_total|reason|",
    "counter|agent_lease_lists_total|http_response_code,reason|",
    "counter|agent_lease_watches_total|http_response_code,reason|",
    "counter|agent_reconnects_total||",
    "counter|agent_reverse_accepted_total|target|",
    "counter|agent_reverse_failures_total|reason|",
    "counter|agent_server_connection_failure_count|direction|",
    "counter|agent_stream_errors_total|segment,code,packet_type|",
    "counter|agent_stream_packets_total|segment,packet_type|",
    "gauge|agent_buffered_bytes||",
    "gauge|agent_build_info|version,runtime|",
    "gauge|agent_full_receive_channels||",
    "gauge|agent_known_server_count||",
    "gauge|agent_open_endpoint_connections||",
    "gauge|agent_open_server_connections||",
    "gauge|agent_reverse_connections||",
    `histogram|agent_dial_duration_seconds||${latency}`,
    `histogram|agent_lease_list_latency_seconds|http_response_code|${latency}`,
  ]);
  budget.add(7);
  assert.ok((await registry.metrics()).includes(`${PREFIX}agent_buffered_bytes 7`));
});

test("agentMetrics: failures are there from the start with every reason, at zero", async () => {
  const registry = new Registry();
  agentMetrics(registry);
  const text = await registry.metrics();
  for (const one of [
    'agent_endpoint_dial_failure_total{reason="timeout"}',
    'agent_server_connection_failure_count{direction="to_server"}',
    'agent_reverse_failures_total{reason="no_server"}',
    "agent_reconnects_total",
  ]) {
    assert.ok(text.includes(`\n${PREFIX}${one} 0\n`), one);
  }
});
