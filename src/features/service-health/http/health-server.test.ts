import assert from "node:assert/strict";
import { once } from "node:events";
import { type AddressInfo, createServer } from "node:net";
import { test } from "node:test";
import { FakeClock, systemClock } from "#base/clock";
import { nullLogger } from "#base/log";
import { createRegistry } from "#base/metrics";
import { ServiceHealthError } from "../errors.ts";
import type { HealthEvent } from "../events.ts";
import { healthMetrics, serviceProxyMetrics } from "../metrics/index.ts";
import { AUTOSCALER_TAINT, NodeHealth } from "../state/index.ts";
import { eventually, onBug, probe, running } from "../testing/probe.ts";
import { HealthServer } from "./index.ts";

const ANY_PORT = { host: "127.0.0.1", port: 0 };

function healthyNode(): NodeHealth {
  const health = new NodeHealth({ healthTimeoutMs: 60_000, clock: systemClock });
  health.started([4, 6]);
  health.listed();
  for (const family of [4, 6] as const) health.synced(family);
  health.node({ isDeleting: false, taintKeys: [] });
  return health;
}

const portOf = (server: HealthServer): Promise<number> => eventually(() => server.port);

test("HealthServer: a wildcard of either family answers over both families", async () => {
  for (const host of ["0.0.0.0", "::"]) {
    const server = new HealthServer(
      { health: healthyNode(), clock: systemClock, log: nullLogger, onBug },
      { address: { host, port: 0 }, lingerMs: 0 },
    );
    await using _run = running(server);
    const port = await portOf(server);
    for (const from of ["127.0.0.1", "::1"])
      assert.equal((await probe(port, { host: from })).code, 200, `${host} ${from}`);
  }
});

test("HealthServer: a specific address is bound alone", async () => {
  const server = new HealthServer(
    { health: healthyNode(), clock: systemClock, log: nullLogger, onBug },
    { address: { host: "127.0.0.2", port: 0 }, lingerMs: 0 },
  );
  await using _run = running(server);
  const port = await portOf(server);
  assert.equal((await probe(port, { host: "127.0.0.2" })).code, 200);
  await assert.rejects(probe(port, { host: "127.0.0.1" }), /ECONNREFUSED/);
  await assert.rejects(probe(port, { host: "::1" }), /ECONNREFUSED/);
});

test("HealthServer: /healthz and /livez answer any method with the headers of the spec; HEAD has no body; all else is 404", async () => {
  const server = new HealthServer(
    { health: healthyNode(), clock: systemClock, log: nullLogger, onBug },
    { address: ANY_PORT, lingerMs: 0 },
  );
  await using _run = running(server);
  const port = await portOf(server);
  for (const path of ["/healthz", "/livez", "/healthz?verbose"]) {
    for (const method of ["GET", "HEAD", "POST", "OPTIONS"]) {
      const { code, headers, body } = await probe(port, { path, method });
      assert.equal(code, 200, `${method} ${path}`);
      assert.equal(headers["content-type"], "application/json");
      assert.equal(headers["x-content-type-options"], "nosniff");
      assert.equal(headers["cache-control"], "no-store");
      if (method === "HEAD") assert.equal(body, "");
      else assert.equal((JSON.parse(body) as { readonly healthy: boolean }).healthy, true);
    }
  }
  for (const path of ["http://node-a:10256/healthz", "HTTP://[::1]/livez?verbose"])
    assert.equal((await probe(port, { path })).code, 200, path);
  for (const path of [
    "http://healthz",
    "http:///",
    "/http://node-a/healthz",
    "/",
    "/metrics",
    "/healthz/",
    "/healthzz",
    "/livez/x",
    "*",
  ]) {
    assert.equal((await probe(port, { path })).code, 404, path);
  }
});

test("HealthServer: the code follows the node, and the counters count each answer by its code", async () => {
  const health = healthyNode();
  const registry = createRegistry();
  const server = new HealthServer(
    {
      health,
      onAnswer: healthMetrics(serviceProxyMetrics(registry), health),
      clock: systemClock,
      log: nullLogger,
      onBug,
    },
    { address: ANY_PORT, lingerMs: 0 },
  );
  await using _run = running(server);
  const port = await portOf(server);
  const ask = async (path: string): Promise<number> => (await probe(port, { path })).code;
  assert.deepEqual([await ask("/healthz"), await ask("/livez"), await ask("/other")], [200, 200, 404]);
  health.node({ isDeleting: false, taintKeys: [AUTOSCALER_TAINT] });
  assert.deepEqual([await ask("/healthz"), await ask("/healthz"), await ask("/livez")], [503, 503, 200]);
  const text = await registry.metrics();
  for (const line of [
    'kubeproxy_proxy_healthz_total{code="200"} 1',
    'kubeproxy_proxy_healthz_total{code="503"} 2',
    'kubeproxy_proxy_livez_total{code="200"} 2',
    'kubeproxy_proxy_livez_total{code="503"} 0',
    'kubeproxy_health_state{check="healthz"} 0',
    'kubeproxy_health_state{check="livez"} 1',
    "kubeproxy_node_eligible 0",
  ]) {
    assert.ok(text.includes(`${line}\n`), line);
  }
});

test("HealthServer: a taken port is opened within 2 s after it becomes free, however long it was taken, with one Event", async () => {
  const clock = new FakeClock();
  const other = createServer().listen(0, "127.0.0.1");
  await once(other, "listening");
  const { port } = other.address() as AddressInfo;
  const events: HealthEvent[] = [];
  const server = new HealthServer(
    { health: healthyNode(), clock, onEvent: (event) => events.push(event), log: nullLogger, onBug },
    { address: { host: "127.0.0.1", port }, lingerMs: 0 },
  );
  const run = running(server);
  await clock.advance(12_000);
  assert.equal(server.port, undefined);
  assert.deepEqual(
    events.map(({ about, type, reason }) => [about, type, reason]),
    [["node", "Warning", "FailedToStartProxierHealthcheck"]],
  );
  assert.match(events[0]?.note ?? "", new RegExp(`127.0.0.1:${port}.*in use`));
  other.close();
  await once(other, "close");
  assert.equal(server.port, undefined);
  await clock.advance(2000);
  assert.equal(server.port, port);
  assert.equal((await probe(port)).code, 200);
  await clock.advance(0);
  const ended = run[Symbol.asyncDispose]();
  await clock.advance(0);
  await ended;
});

test("HealthServer: with hardFail a taken port is an error; a name is an error in any case", async () => {
  const other = createServer().listen(0, "127.0.0.1");
  await once(other, "listening");
  const address = { host: "127.0.0.1", port: (other.address() as AddressInfo).port };
  const hard = running(
    new HealthServer(
      { health: healthyNode(), clock: systemClock, log: nullLogger, onBug },
      { address, hardFail: true },
    ),
  );
  await assert.rejects(hard.ended, (error) => error instanceof ServiceHealthError && error.code === "cannot-listen");
  other.close();
  const named = running(
    new HealthServer(
      { health: healthyNode(), clock: systemClock, log: nullLogger, onBug },
      { address: { host: "localhost", port: 0 } },
    ),
  );
  await assert.rejects(named.ended, (error) => error instanceof ServiceHealthError && error.code === "invalid-address");
});

test("HealthServer: at the end /healthz is 503 for a second, then the port is closed", async () => {
  const clock = new FakeClock();
  const server = new HealthServer({ health: healthyNode(), clock, log: nullLogger, onBug }, { address: ANY_PORT });
  const run = running(server);
  const port = await portOf(server);
  assert.equal((await probe(port)).code, 200);
  const ended = run[Symbol.asyncDispose]();
  await eventually(() => (clock.pending > 0 ? true : undefined));
  assert.equal((await probe(port)).code, 503);
  assert.equal((await probe(port, { path: "/livez" })).code, 200);
  await clock.advance(1000);
  await ended;
  await assert.rejects(probe(port), /ECONNREFUSED/);
});
