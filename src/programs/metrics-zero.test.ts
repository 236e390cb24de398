import assert from "node:assert/strict";
import { test } from "node:test";
import { Registry } from "#base/metrics";
import { coildMetrics } from "./coild-metrics.ts";
import { controllerMetrics } from "./daemon-flags.ts";

test("coildMetrics, controllerMetrics: counts are there from the start with every label, at zero", async () => {
  const [coild, controllers] = [new Registry(), new Registry()];
  coildMetrics(coild, { ipam: { snapshot: () => ({ blocks: [], stranded: 0 }), lost: [] } as never, nodeName: "a" });
  controllerMetrics(controllers)("blocks");
  const text = `${await coild.metrics()}\n${await controllers.metrics()}`;
  const call = (method: string, code: string): string =>
    `grpc_server_handled_total{grpc_type="unary",grpc_service="pkg.cnirpc.CNI",grpc_method="${method}",grpc_code="${code}"}`;
  for (const one of [
    call("Add", "OK"),
    call("GC", "Unauthenticated"),
    'controller_runtime_reconcile_total{controller="blocks",result="requeue_after"}',
    'controller_runtime_reconcile_errors_total{controller="blocks"}',
    'controller_runtime_reconcile_panics_total{controller="blocks"}',
    'controller_runtime_reconcile_time_seconds_count{controller="blocks"}',
  ]) {
    assert.ok(text.includes(`\n${one} 0\n`), one);
  }
});
