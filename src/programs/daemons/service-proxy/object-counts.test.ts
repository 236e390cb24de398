import assert from "node:assert/strict";
import { test } from "node:test";
import { FakeClock } from "#base/clock";
import { createRegistry } from "#base/metrics";
import { SyncMetrics, serviceProxyMetrics } from "#features/service-health";
import { countObjects } from "./object-counts.ts";

test("countObjects: the metrics have the numbers of the last sync at once, and stay while the table is not known", async () => {
  const registry = createRegistry();
  const syncs = new SyncMetrics(serviceProxyMetrics(registry), { families: [4], clock: new FakeClock() });
  const value = async (name: string, label: string): Promise<number | undefined> => {
    const { values = [] } = (await registry.getSingleMetric(name)?.get()) ?? {};
    return values.find(({ labels }) => Object.values(labels).includes(label))?.value;
  };
  const seen = async () => [
    await value("kubeproxy_sync_proxy_rules_no_local_endpoints_total", "internal"),
    await value("kubeproxy_sync_proxy_rules_no_local_endpoints_total", "external"),
    await value("kubeproxy_nftables_objects", "frontend"),
    await value("kubeproxy_nftables_objects", "endpoint"),
  ];
  countObjects(syncs, 4, { counts: { noLocalInternal: 1, noLocalExternal: 2, frontEnds: 3, endpoints: 4 } });
  assert.deepEqual(await seen(), [1, 2, 3, 4]);
  countObjects(syncs, 4, { counts: undefined });
  assert.deepEqual(await seen(), [1, 2, 3, 4]);
  countObjects(syncs, 4, { counts: { noLocalInternal: 0, noLocalExternal: 0, frontEnds: 5, endpoints: 6 } });
  assert.deepEqual(await seen(), [0, 0, 5, 6]);
});
