import assert from "node:assert/strict";
import { test } from "node:test";
import { FakeClock } from "#base/clock";
import { createRegistry } from "#base/metrics";
import { SyncMetrics, serviceProxyMetrics } from "#features/service-health";
import { COUNT_MS, type CountedProxy, ObjectCounts } from "./object-counts.ts";

type Counted = CountedProxy["plane"]["frontEnds"] extends ReadonlyMap<string, infer F> ? F : never;

/** A front end of a Service with policy Local for internal traffic; `local`: it has endpoints on this node. */
function frontEnd(name: string, local: boolean): readonly [string, Counted] {
  const common = { key: name, isNodePort: false, service: `ns/${name}:80/TCP`, localVerdict: undefined };
  const rest = { noEndpoints: false, affinitySeconds: 0, sourceRanges: undefined };
  const verdict = local ? ({ kind: "goto", chain: "lb-1" } as const) : ({ kind: "drop" } as const);
  return [name, { ...common, ...rest, verdict, slots: local ? ["e"] : [], localSlots: [] }];
}

function setUp() {
  const clock = new FakeClock();
  const registry = createRegistry();
  const syncs = new SyncMetrics(serviceProxyMetrics(registry), { families: [4], clock });
  const proxy = { isBusy: false, plane: { isKnown: true, frontEnds: new Map<string, Counted>() } };
  const counts = new ObjectCounts({ syncs, clock, proxyOf: () => proxy });
  const value = async (name: string, label: string): Promise<number | undefined> => {
    const { values = [] } = (await registry.getSingleMetric(name)?.get()) ?? {};
    return values.find(({ labels }) => Object.values(labels).includes(label))?.value;
  };
  return {
    clock,
    proxy,
    counts,
    noLocal: () => value("kubeproxy_sync_proxy_rules_no_local_endpoints_total", "internal"),
    frontEnds: () => value("kubeproxy_nftables_objects", "frontend"),
  };
}

test("ObjectCounts: the last sync of several in a row is counted too, within five seconds, by one timer", async () => {
  const { clock, proxy, counts, noLocal, frontEnds } = setUp();
  proxy.plane.frontEnds = new Map([frontEnd("a", true)]);
  counts.synced(4);
  assert.deepEqual([await noLocal(), await frontEnds()], [0, 1]);
  await clock.advance(1000);
  proxy.plane.frontEnds = new Map([frontEnd("a", false), frontEnd("b", true)]);
  counts.synced(4);
  counts.synced(4);
  assert.deepEqual([await frontEnds(), clock.pending], [1, 1], "not each sync is counted");
  await clock.advance(COUNT_MS);
  assert.deepEqual([await noLocal(), await frontEnds(), clock.pending], [1, 2, 0]);
});

test("ObjectCounts: a table that is being listed is counted after the sync, not as empty", async () => {
  const { clock, proxy, counts, frontEnds } = setUp();
  proxy.plane.frontEnds = new Map([frontEnd("a", true)]);
  counts.synced(4);
  counts.synced(4);
  const { frontEnds: known } = proxy.plane;
  proxy.plane = { isKnown: false, frontEnds: new Map() };
  await clock.advance(COUNT_MS);
  assert.equal(await frontEnds(), 1);
  proxy.plane = { isKnown: true, frontEnds: new Map([...known, frontEnd("b", true)]) };
  counts.synced(4);
  assert.equal(await frontEnds(), 2);
});
