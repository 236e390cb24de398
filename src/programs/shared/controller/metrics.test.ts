import assert from "node:assert/strict";
import { test } from "node:test";
import { Registry } from "#base/metrics";
import { leaderMetrics, reconcileMetrics } from "./metrics.ts";

test("reconcileMetrics, leaderMetrics: counts are there from the start with every label, at zero", async () => {
  const registry = new Registry();
  reconcileMetrics(registry)("blocks");
  leaderMetrics(registry)("a-leader");
  const text = await registry.metrics();
  for (const one of [
    'controller_runtime_reconcile_total{controller="blocks",result="requeue_after"}',
    'controller_runtime_reconcile_errors_total{controller="blocks"}',
    'controller_runtime_reconcile_panics_total{controller="blocks"}',
    'controller_runtime_reconcile_time_seconds_count{controller="blocks"}',
    'workqueue_depth{name="blocks"}',
    'leader_election_master_status{name="a-leader"}',
  ]) {
    assert.ok(text.includes(`\n${one} 0\n`), one);
  }
});
