import assert from "node:assert/strict";
import { test } from "node:test";
import { FakeClock } from "#base/clock";
import { Registry } from "#base/metrics";
import { DURATION_BUCKETS, PROGRAMMING_BUCKETS } from "./buckets.ts";
import { programMetrics, SyncMetrics, serviceProxyMetrics, WatchMetrics } from "./index.ts";

const START = Date.UTC(2026, 0, 1);

function bed() {
  const registry = new Registry();
  const clock = new FakeClock(START);
  return { registry, clock, metrics: new SyncMetrics(serviceProxyMetrics(registry), { families: [4, 6], clock }) };
}

/** Lines without comments. */
async function lines(registry: Registry): Promise<readonly string[]> {
  return (await registry.metrics()).split("\n").filter((line) => line !== "" && !line.startsWith("#"));
}

/** `name{labels}` → value. */
async function values(registry: Registry): Promise<ReadonlyMap<string, number>> {
  return new Map(
    (await lines(registry)).map((line) => {
      const at = line.lastIndexOf(" ");
      return [line.slice(0, at), Number(line.slice(at + 1))] as const;
    }),
  );
}

test("buckets: those of the specification", () => {
  assert.equal(DURATION_BUCKETS.length, 15);
  assert.deepEqual([DURATION_BUCKETS[0], DURATION_BUCKETS[14]], [0.001, 16.384]);
  assert.equal(PROGRAMMING_BUCKETS.length, 2 + 59 + 12 + 7);
  assert.deepEqual(PROGRAMMING_BUCKETS.slice(0, 4), [0.25, 0.5, 1, 2]);
  assert.deepEqual(PROGRAMMING_BUCKETS.slice(59, 63), [58, 59, 60, 65]);
  assert.deepEqual(PROGRAMMING_BUCKETS.slice(-8), [115, 120, 150, 180, 210, 240, 270, 300]);
});

test("SyncMetrics: every name of the specification exists from the start, with every known label, at zero", async () => {
  const { registry } = bed();
  const found = await values(registry);
  for (const family of ["IPv4", "IPv6"]) {
    const label = `{ip_family="${family}"}`;
    for (const name of [
      "sync_proxy_rules_duration_seconds_count",
      "sync_full_proxy_rules_duration_seconds_count",
      "sync_partial_proxy_rules_duration_seconds_count",
      "network_programming_duration_seconds_count",
      "conntrack_reconciler_sync_duration_seconds_count",
      "sync_proxy_rules_last_timestamp_seconds",
      "sync_proxy_rules_last_queued_timestamp_seconds",
      "sync_proxy_rules_nftables_sync_failures_total",
      "sync_proxy_rules_nftables_cleanup_failures_total",
      "conntrack_reconciler_deleted_entries_total",
    ]) {
      assert.equal(found.get(`kubeproxy_${name}${label}`), 0, name);
    }
    for (const policy of ["internal", "external"]) {
      const labels = `{traffic_policy="${policy}",ip_family="${family}"}`;
      assert.equal(found.get(`kubeproxy_sync_proxy_rules_no_local_endpoints_total${labels}`), 0);
    }
  }
  for (const kind of ["service", "endpoint"]) {
    assert.equal(found.get(`kubeproxy_sync_proxy_rules_${kind}_changes_pending`), 0);
    assert.equal(found.get(`kubeproxy_sync_proxy_rules_${kind}_changes_total`), 0);
  }
  assert.equal(found.get("kubeproxy_drift_repairs_total"), 0);
});

test("SyncMetrics: changes are pending until their family's next sync begins, and stay in the total", async () => {
  const { registry, metrics } = bed();
  const pending = async (kind: string): Promise<readonly (number | undefined)[]> => {
    const found = await values(registry);
    return ["pending", "total"].map((what) => found.get(`kubeproxy_sync_proxy_rules_${kind}_changes_${what}`));
  };
  for (const family of [4, 4, 6] as const) metrics.changed("endpoint", family);
  metrics.changed("service", 6);
  assert.deepEqual(
    [await pending("endpoint"), await pending("service")],
    [
      [3, 3],
      [1, 1],
    ],
  );
  metrics.syncing(4);
  assert.deepEqual(
    [await pending("endpoint"), await pending("service")],
    [
      [1, 3],
      [1, 1],
    ],
  );
  metrics.syncing(6);
  assert.deepEqual(
    [await pending("endpoint"), await pending("service")],
    [
      [0, 3],
      [0, 1],
    ],
  );
});

test("SyncMetrics: a success is observed by its kind and in total; a failure is only counted", async () => {
  const { registry, clock, metrics } = bed();
  await clock.advance(2000);
  metrics.queued(4);
  await clock.advance(3000);
  const report = { durationMs: 40, triggeredAt: [], bytes: 1234 };
  metrics.synced(4, { kind: "full", ...report });
  metrics.synced(4, { kind: "partial", ...report });
  metrics.failed(6);
  metrics.flowsDeleted(4, 7, 3);
  const found = await values(registry);
  const of = (name: string, family = "IPv4"): number | undefined =>
    found.get(`kubeproxy_${name}{ip_family="${family}"}`);
  assert.equal(of("sync_proxy_rules_duration_seconds_count"), 2);
  assert.equal(of("sync_full_proxy_rules_duration_seconds_count"), 1);
  assert.equal(of("sync_partial_proxy_rules_duration_seconds_sum"), 0.04);
  assert.equal(of("sync_proxy_rules_last_queued_timestamp_seconds"), (START + 2000) / 1000);
  assert.equal(of("sync_proxy_rules_last_timestamp_seconds"), (START + 5000) / 1000);
  assert.equal(of("nftables_transaction_bytes"), 1234);
  assert.equal(of("sync_proxy_rules_nftables_sync_failures_total", "IPv6"), 1);
  assert.equal(of("sync_proxy_rules_duration_seconds_count", "IPv6"), 0);
  assert.equal(of("conntrack_reconciler_deleted_entries_total"), 7);
});

test("SyncMetrics: one observation for each trigger, none for those from before the start", async () => {
  const { registry, clock, metrics } = bed();
  await clock.advance(10_000);
  const triggeredAt = [START - 5000, START + 2000, START + 9000, START + 12_000];
  metrics.synced(6, { kind: "partial", durationMs: 1, triggeredAt, bytes: 0 });
  const found = await values(registry);
  const of = (name: string): number | undefined => found.get(`kubeproxy_network_programming_duration_seconds${name}`);
  assert.equal(of('_count{ip_family="IPv6"}'), 3);
  assert.equal(of('_sum{ip_family="IPv6"}'), 9);
  assert.equal(of('_bucket{le="1",ip_family="IPv6"}'), 2);
  assert.equal(of('_bucket{le="8",ip_family="IPv6"}'), 3);
});

test("SyncMetrics: repairs, flows, objects and claims are counted by family and kind", async () => {
  const { registry, metrics } = bed();
  metrics.cleanupFailed(6);
  metrics.repaired();
  metrics.contested(true);
  metrics.objects(4, "frontend", 12);
  metrics.objects(4, "frontend", 11);
  metrics.noLocalEndpoints(4, "external", 3);
  const found = await lines(registry);
  for (const line of [
    'kubeproxy_sync_proxy_rules_nftables_cleanup_failures_total{ip_family="IPv6"} 1',
    "kubeproxy_drift_repairs_total 1",
    "kubeproxy_nftables_contested 1",
    'kubeproxy_nftables_objects{kind="frontend",ip_family="IPv4"} 11',
    'kubeproxy_sync_proxy_rules_no_local_endpoints_total{traffic_policy="external",ip_family="IPv4"} 3',
  ]) {
    assert.ok(found.includes(line), line);
  }
});

test("programMetrics: the build and the gates are labels", async () => {
  const registry = new Registry();
  const features = [
    { name: "KubeProxyDrainingTerminatingNodes", stage: "", isEnabled: true },
    { name: "AllowServiceExternalIPs", stage: "BETA", isEnabled: false },
  ];
  programMetrics(serviceProxyMetrics(registry), { version: "v1.2.3", features });
  const found = await lines(registry);
  assert.ok(found.some((line) => /^kubernetes_build_info\{git_version="v1\.2\.3",.*\} 1$/.test(line)));
  assert.ok(found.includes('kubernetes_feature_enabled{name="KubeProxyDrainingTerminatingNodes",stage=""} 1'));
  assert.ok(found.includes('kubernetes_feature_enabled{name="AllowServiceExternalIPs",stage="BETA"} 0'));
});

test("WatchMetrics: a resource is connected until it fails, and each failure is counted by its reason", async () => {
  const registry = new Registry();
  const metrics = new WatchMetrics(serviceProxyMetrics(registry), {
    resources: ["services", "nodes"],
    reasons: ["unreachable", "gone"],
  });
  metrics.connected("services");
  metrics.connected("nodes");
  metrics.failed("services", "unreachable");
  const found = await lines(registry);
  assert.ok(found.includes('kubeproxy_watch_connected{resource="services"} 0'));
  assert.ok(found.includes('kubeproxy_watch_connected{resource="nodes"} 1'));
  assert.ok(found.includes('kubeproxy_watch_errors_total{resource="services",reason="unreachable"} 1'));
  assert.ok(found.includes('kubeproxy_watch_errors_total{resource="nodes",reason="gone"} 0'), "from the start");
});
