import assert from "node:assert/strict";
import { test } from "node:test";
import { Health } from "#base/health";
import { serve } from "../http-endpoints/testing/serve.ts";
import {
  AGENT_UNREADY,
  type HealthSource,
  healthRoutes,
  partChecks,
  type ReadinessCheck,
  resultsOf,
  SERVER_UNREADY,
} from "./readiness.ts";

function source(checks: () => readonly ReadinessCheck[]): HealthSource {
  return { results: () => resultsOf(checks()), fault: () => undefined, metrics: () => ({ body: "metrics" }) };
}

test("healthRoutes: every check in its words; verbose lists all of them", async (t) => {
  let fault: string | undefined = "no servers connected";
  const checks: ReadinessCheck[] = [
    { name: "ping", fault: () => undefined },
    { name: "server-connected", fault: () => fault },
  ];
  const { get } = await serve(
    t,
    healthRoutes(
      source(() => checks),
      AGENT_UNREADY,
    ),
  );
  const failed = "503 [+]ping ok\n[-]server-connected failed: no servers connected\n";
  for (const path of ["/readyz", "/ready", "/readyz?verbose"]) assert.equal(await get(path), failed);
  fault = undefined;
  assert.equal(await get("/readyz"), "200 ok");
  assert.equal(await get("/ready?verbose=1"), "200 [+]ping ok\n[+]server-connected ok\ncheck passed\n");
  assert.equal(await get("/healthz"), "200 ok");
  assert.equal(await get("/metrics"), "200 metrics");
});

test("healthRoutes: of a server, Konnectivity's words about agents, and a part's own reason", async (t) => {
  const health = new Health();
  let agents: string | undefined = "no connection to any proxy agent";
  const checks = (): readonly ReadinessCheck[] => [{ name: "agents", fault: () => agents }, ...partChecks(health)];
  const { get } = await serve(t, healthRoutes(source(checks), SERVER_UNREADY));
  assert.equal(await get("/readyz"), "500 no connection to any proxy agent");
  const lease = health.part("lease");
  const bind = health.part("bind-interface", { needed: "always" });
  bind.ok();
  assert.equal(await get("/ready"), "500 no connection to any proxy agent\nlease: starting");
  agents = undefined;
  lease.degraded(new Error("forbidden"));
  assert.equal(await get("/readyz"), "500 lease: degraded: forbidden");
  assert.equal(
    await get("/readyz?verbose"),
    "500 [+]agents ok\n[-]lease failed: degraded: forbidden\n[+]bind-interface ok\n",
  );
  lease.ok();
  assert.equal(await get("/readyz"), "200 ok");
  // A part that needs the API server may fail after its first success; a part of the node itself may not.
  lease.degraded(new Error("the API server is away"));
  assert.equal(await get("/readyz?verbose"), "200 [+]agents ok\n[+]lease ok\n[+]bind-interface ok\ncheck passed\n");
  bind.degraded(new Error("busy"));
  assert.equal(await get("/readyz"), "500 bind-interface: degraded: busy");
});

test("healthRoutes: a fault makes /healthz fail with its reason", async (t) => {
  let fault: string | undefined = "no answer from worker 2";
  const { get } = await serve(t, healthRoutes({ ...source(() => []), fault: () => fault }, SERVER_UNREADY));
  assert.equal(await get("/healthz"), "500 no answer from worker 2");
  fault = undefined;
  assert.equal(await get("/healthz"), "200 ok");
});
