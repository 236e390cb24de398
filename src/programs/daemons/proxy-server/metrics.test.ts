import assert from "node:assert/strict";
import { test } from "node:test";
import { systemClock } from "#base/clock";
import { nullLogger } from "#base/log";
import { Registry } from "#base/metrics";
import { ProxyServer } from "#features/tunnel";
import { describedMetrics, PREFIX } from "../../shared/tunnel/testing/described-metrics.ts";
import { serverMetrics } from "./metrics.ts";

const DEFAULT_BUCKETS = "0.005 0.01 0.025 0.05 0.1 0.25 0.5 1 2.5 5 10";

test("serverMetrics: names, types, labels and buckets are Konnectivity's, with our own", async () => {
  const registry = new Registry();
  const metrics = serverMetrics(registry);
  const proxy = new ProxyServer(
    { log: nullLogger, metrics, onBug: (error) => assert.fail(String(error)), clock: systemClock },
    { serverID: "a", serverCount: () => 1, strategies: ["destHost", "default"], capabilities: new Set() },
  );
  metrics.observe({
    backends: proxy.backends,
    budget: proxy.budget,
    agentBytes: () => ({ received: 3, sent: 4 }),
  });
  const latency = "0.000001 0.00001 0.0001 0.005 0.025 0.1 0.5 2.5 12.5";
  assert.deepEqual(await describedMetrics(registry), [
    "counter|server_agent_stream_bytes_total|direction|",
    "counter|server_agents_refused_total|reason|",
    "counter|server_connections_refused_total|listener,reason|",
    "counter|server_culled_leases_count||",
    "counter|server_dial_failure_count|reason|",
    "counter|server_lease_delete_total|http_status_code,reason|",
    "counter|server_lease_list_total|http_status_code,reason|",
    "counter|server_reverse_dials_total|result|",
    "counter|server_slow_consumer_closed_total||",
    "counter|server_stream_errors_total|segment,code,packet_type|",
    "counter|server_stream_packets_total|segment,packet_type|",
    "gauge|server_buffered_bytes||",
    "gauge|server_build_info|version,runtime|",
    "gauge|server_established_connections||",
    "gauge|server_full_receive_channels|service_method|",
    "gauge|server_grpc_connections|service_method|",
    "gauge|server_http_connections||",
    "gauge|server_identity_streams|identity|",
    "gauge|server_pending_backend_dials||",
    "gauge|server_ready_backend_connections||",
    "gauge|server_ready_backends|proxy_strategy|",
    "gauge|server_reverse_connections||",
    "histogram|server_connection_duration_seconds||1 5 15 30 60 300 900 1800 3600 14400 43200 86400",
    `histogram|server_dial_duration_seconds||${latency}`,
    `histogram|server_frontend_write_duration_seconds||${latency}`,
    `histogram|server_lease_delete_latency_seconds|http_status_code|${DEFAULT_BUCKETS}`,
    `histogram|server_lease_list_latency_seconds|http_status_code|${DEFAULT_BUCKETS}`,
  ]);
  const text = await registry.metrics();
  for (const strategy of ["destHost", "default"]) {
    assert.ok(text.includes(`${PREFIX}server_ready_backends{proxy_strategy="${strategy}"} 0`));
  }
  metrics.streamError("from_agent", 14, "DATA");
  metrics.streamError("from_agent", 99, "Unknown");
  const errors = await registry.metrics();
  assert.ok(errors.includes('stream_errors_total{segment="from_agent",code="Unavailable",packet_type="DATA"} 1'));
  assert.ok(errors.includes('stream_errors_total{segment="from_agent",code="Unknown",packet_type="Unknown"} 1'));
  assert.ok(errors.includes('agent_stream_bytes_total{direction="sent"} 4'));
});

test("serverMetrics: failures are there from the start with every reason, at zero", async () => {
  const registry = new Registry();
  serverMetrics(registry);
  const text = await registry.metrics();
  for (const one of [
    'server_dial_failure_count{reason="no_agent"}',
    'server_dial_failure_count{reason="frontend_close"}',
    'server_reverse_dials_total{result="dial_error"}',
    "server_slow_consumer_closed_total",
  ]) {
    assert.ok(text.includes(`\n${PREFIX}${one} 0\n`), one);
  }
});

test("serverMetrics: streams have the names of identities up to a thousand, and those that are gone have no series", async () => {
  const registry = new Registry();
  const metrics = serverMetrics(registry);
  const proxy = new ProxyServer(
    { log: nullLogger, metrics, onBug: (error) => assert.fail(String(error)), clock: systemClock },
    { serverID: "a", serverCount: () => 1, strategies: ["default"], capabilities: new Set() },
  );
  let identities = new Map(Array.from({ length: 1500 }, (_, at) => [`kubelet/n${at}`, 2]));
  const { backends, budget } = proxy;
  const agentBytes = () => ({ received: 0, sent: 0 });
  metrics.observe({ backends, budget, agentBytes, identities: () => identities });
  const series = async (): Promise<string[]> =>
    (await registry.metrics()).split("\n").filter((line) => line.startsWith(`${PREFIX}server_identity_streams{`));
  const many = await series();
  assert.equal(many.length, 1001);
  assert.ok(many.includes(`${PREFIX}server_identity_streams{identity="others"} 1000`));
  identities = new Map([["kubelet/n3", 1]]);
  assert.deepEqual(await series(), [`${PREFIX}server_identity_streams{identity="kubelet/n3"} 1`]);
  metrics.agentRefused("no-rule");
  assert.ok((await registry.metrics()).includes('agents_refused_total{reason="no_rule"} 1'));
});
