import assert from "node:assert/strict";
import { test } from "node:test";
import { systemClock } from "#base/clock";
import { nullLogger } from "#base/log";
import { createRegistry } from "#base/metrics";
import { type HttpRoutes, hostNameOf } from "#wire/http-endpoint";
import { connected, eventually, probe, running } from "../testing/probe.ts";
import { MetricsServer } from "./index.ts";
import type { MetricsServerOptions } from "./metrics-server.ts";

function metricsServer(
  debug?: HttpRoutes,
  options: Partial<MetricsServerOptions> = {},
): { readonly server: MetricsServer; readonly bugs: unknown[] } {
  const bugs: unknown[] = [];
  const server = new MetricsServer(
    {
      registry: createRegistry(),
      configz: () => ({ "kubeproxy.config.k8s.io": { mode: "nftables" } }),
      debug,
      onBug: (error) => bugs.push(error),
      clock: systemClock,
      log: nullLogger,
    },
    { address: { host: "127.0.0.1", port: 0 }, ...options },
  );
  return { server, bugs };
}

test("MetricsServer: /metrics, /proxyMode, /healthz and /configz are as kube-proxy's; all else is 404", async () => {
  const { server } = metricsServer();
  await using _run = running(server);
  const port = await eventually(() => server.port);
  const metrics = await probe(port, { path: "/metrics" });
  assert.match(metrics.headers["content-type"] ?? "", /^text\/plain; version=0\.0\.4/);
  assert.match(metrics.body, /^process_start_time_seconds \d/m);
  const mode = await probe(port, { path: "/proxyMode" });
  assert.deepEqual([mode.code, mode.body], [200, "nftables"]);
  assert.equal(mode.headers["content-type"], "text/plain; charset=utf-8");
  assert.equal(mode.headers["x-content-type-options"], "nosniff");
  const healthz = await probe(port);
  assert.deepEqual([healthz.code, healthz.body], [200, "ok"]);
  const configz = await probe(port, { path: "/configz" });
  assert.equal(configz.headers["content-type"], "application/json");
  assert.deepEqual(JSON.parse(configz.body), { "kubeproxy.config.k8s.io": { mode: "nftables" } });
  for (const path of ["/", "/livez", "/debug/pprof/", "/metrics/x"]) {
    assert.equal((await probe(port, { path })).code, 404, path);
  }
});

test("MetricsServer: all but /healthz is for those who may", async () => {
  const authorize = async () => ({ status: 401, body: "who?" });
  const { server } = metricsServer({ "/debug/pprof/": () => ({ body: "d" }) }, { authorize });
  await using _run = running(server);
  const port = await eventually(() => server.port);
  for (const path of ["/metrics", "/proxyMode", "/configz", "/debug/pprof/profile"])
    assert.equal((await probe(port, { path })).code, 401, path);
  assert.equal((await probe(port)).code, 200);
});

test("MetricsServer: debug routes answer with text, streams and their own codes", async () => {
  const { server } = metricsServer({
    "/debug/flags": (request) => ({ status: 202, body: `${hostNameOf(request)} ${request.query.get("v")}` }),
    "/debug/pprof/": async ({ path }) => ({
      type: "application/octet-stream",
      headers: { "content-disposition": "attachment" },
      body: (async function* () {
        yield Buffer.from(path);
        yield Buffer.alloc(200_000, "x");
      })(),
    }),
  });
  await using _run = running(server);
  const port = await eventually(() => server.port);
  const flags = await probe(port, { path: "/debug/flags?v=4" });
  assert.deepEqual([flags.code, flags.body], [202, "127.0.0.1 4"]);
  const profile = await probe(port, { path: "/debug/pprof/heap" });
  assert.equal(profile.headers["content-disposition"], "attachment");
  assert.equal(profile.body.length, "/debug/pprof/heap".length + 200_000);
});

test("MetricsServer: a client that closes aborts its route; a route that fails ends its connection and is reported", async () => {
  const aborted = Promise.withResolvers<void>();
  const { server, bugs } = metricsServer({
    "/wait": ({ signal }) => {
      const { promise, resolve } = Promise.withResolvers<{ readonly body: string }>();
      signal.addEventListener("abort", () => {
        aborted.resolve();
        resolve({ body: "late" });
      });
      return promise;
    },
    "/bug": () => {
      throw new Error("a bug");
    },
  });
  await using _run = running(server);
  const port = await eventually(() => server.port);
  const socket = await connected(port);
  socket.write("GET /wait HTTP/1.1\r\nHost: localhost\r\n\r\n", () => socket.destroy());
  await aborted.promise;
  assert.deepEqual(bugs, []);
  await assert.rejects(probe(port, { path: "/bug" }), /socket hang up|ECONNRESET/);
  assert.equal(bugs.length, 1);
});
