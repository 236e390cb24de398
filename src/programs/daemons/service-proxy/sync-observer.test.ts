import assert from "node:assert/strict";
import { test } from "node:test";
import { FakeClock } from "#base/clock";
import { nullLogger } from "#base/log";
import { createRegistry } from "#base/metrics";
import { NodeHealth, ServicePorts, SyncMetrics, serviceProxyMetrics } from "#features/service-health";
import { KernelError } from "#kernel/errors";
import { openNetNs } from "#kernel/netns";
import { Readiness } from "./readiness.ts";
import { syncObserver } from "./sync-observer.ts";

const FAMILIES = [4, 6] as const;
const REPORT = { kind: "full", changes: 0, drift: 0, isRepair: false, transactions: 0, bytes: 0 } as const;

test("syncObserver: a kernel without connection tracking makes the proxy not ready, and leaves it healthy, until a check succeeds", async () => {
  const clock = new FakeClock();
  using netns = openNetNs("own");
  const health = new NodeHealth({ healthTimeoutMs: 60_000, clock });
  const readiness = new Readiness({ resources: [], families: FAMILIES });
  const onEvent = (): void => undefined;
  const observer = syncObserver({
    syncs: new SyncMetrics(serviceProxyMetrics(createRegistry()), { families: FAMILIES, clock }),
    health,
    readiness,
    heap: { synced: () => undefined },
    ports: new ServicePorts({
      health,
      netns,
      clock,
      log: nullLogger,
      onEvent,
      onBug: (error) => assert.fail(String(error)),
    }),
    onEvent,
    onDisagreement: () => assert.fail("no transaction was refused"),
    log: nullLogger,
    proxyOf: () => undefined,
  });
  health.started(FAMILIES);
  health.listed();
  health.node({ isDeleting: false, taintKeys: [] });
  for (const family of FAMILIES) {
    observer.queued?.(family);
    observer.started?.(family);
    observer.synced?.(family, { ...REPORT, durationMs: 1, triggeredAt: [] });
    observer.flowsFailed?.(family, new KernelError("invalid", "Cannot list connections: Invalid argument (EINVAL)"));
  }
  await clock.advance(600_000);
  const state = (): unknown => [
    health.passes("healthz"),
    health.passes("livez"),
    readiness.health.unready.map(({ name, reason }) => `${name}: ${reason}`),
  ];
  assert.deepEqual(state(), [true, true, ["conntrack: Cannot list connections: Invalid argument (EINVAL)"]]);
  for (const family of FAMILIES) observer.flowsDeleted?.(family, 0, 1);
  assert.deepEqual(state(), [true, true, []]);
});
