import assert from "node:assert/strict";
import { once } from "node:events";
import { connect } from "node:net";
import { text } from "node:stream/consumers";
import { type TestContext, test } from "node:test";
import { Health } from "#base/health";
import { nullLogger } from "#base/log";
import { Registry } from "#base/metrics";
import { adminRoutes } from "./agent-health.ts";
import { type Routes, serveRoutes } from "./http.ts";
import { AGENT_UNREADY, type Check, healthRoutes, partChecks, SERVER_UNREADY } from "./readiness.ts";

async function serve(t: TestContext, routes: Routes) {
  const bugs: unknown[] = [];
  const endpoint = await serveRoutes(
    { routes, log: nullLogger, onBug: (error) => bugs.push(error) },
    { address: { host: "127.0.0.1", port: 0 } },
  );
  t.after(() => endpoint[Symbol.asyncDispose]());
  const get = async (path: string): Promise<string> => {
    const answer = await fetch(`http://127.0.0.1:${endpoint.port}${path}`, { redirect: "manual" });
    assert.equal(answer.headers.get("cache-control"), "no-store", path);
    return `${answer.status} ${await answer.text()}`;
  };
  /** Sends bytes as they are and reads until the end. */
  const raw = (request: string): Promise<string> => {
    const socket = connect(endpoint.port, "127.0.0.1");
    socket.end(request);
    return text(socket);
  };
  return { endpoint, bugs, get, raw };
}

test("healthRoutes: every check in its words; verbose tells all of them", async (t) => {
  let fault: string | undefined = "no servers connected";
  const checks: Check[] = [
    { name: "ping", fault: () => undefined },
    { name: "server-connected", fault: () => fault },
  ];
  const { get } = await serve(
    t,
    healthRoutes(new Registry(), () => checks, AGENT_UNREADY),
  );
  const failed = "503 [+]ping ok\n[-]server-connected failed: no servers connected\n";
  for (const path of ["/readyz", "/ready", "/readyz?verbose"]) assert.equal(await get(path), failed);
  fault = undefined;
  assert.equal(await get("/readyz"), "200 ok");
  assert.equal(await get("/ready?verbose=1"), "200 [+]ping ok\n[+]server-connected ok\ncheck passed\n");
  assert.equal(await get("/healthz"), "200 ok");
  assert.equal(await get("/metrics"), "200 \n");
});

test("healthRoutes: of a server, upstream's words about agents, and a part's own about others", async (t) => {
  const health = new Health();
  let agents: string | undefined = "no connection to any proxy agent";
  const checks = (): readonly Check[] => [{ name: "agents", fault: () => agents }, ...partChecks(health)];
  const { get } = await serve(t, healthRoutes(new Registry(), checks, SERVER_UNREADY));
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
  // What has once been done may fail later, where it is the API server's; what is the node's own may not.
  lease.degraded(new Error("the API server is away"));
  assert.equal(await get("/readyz?verbose"), "200 [+]agents ok\n[+]lease ok\n[+]bind-interface ok\ncheck passed\n");
  bind.degraded(new Error("busy"));
  assert.equal(await get("/readyz"), "500 bind-interface: degraded: busy");
});

test("adminRoutes: metrics have moved to the health port of whatever host was asked", async (t) => {
  const { raw, get } = await serve(t, adminRoutes(false, 8093));
  const cases = [
    ["node1:8094", "http://node1:8093/metrics"],
    ["[::1]:8094", "http://[::1]:8093/metrics"],
    ["192.0.2.1", "http://192.0.2.1:8093/metrics"],
    ["evil/..@x", "http://127.0.0.1:8093/metrics"],
  ];
  for (const [host, location] of cases) {
    const answer = await raw(`GET /metrics HTTP/1.1\r\nHost: ${host}\r\nConnection: close\r\n\r\n`);
    assert.match(answer, /^HTTP\/1\.1 301 /, host);
    assert.ok(answer.includes(`location: ${location}\r\n`), answer);
  }
  assert.equal(await get("/debug/pprof/"), "404 404 page not found\n");
});

test("serveRoutes: targets that are no path, and members of objects, are not found", async (t) => {
  const { raw, bugs } = await serve(t, { "/x": () => ({ body: "x" }) });
  for (const target of ["//", "*", "/constructor", "/__proto__", "http://[", "/x/y"]) {
    assert.match(
      await raw(`GET ${target} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n`),
      /^HTTP\/1\.1 40[04] /,
      target,
    );
  }
  assert.deepEqual(bugs, []);
});

test("serveRoutes: a route that throws is a bug, and its client is told nothing", async (t) => {
  const { raw, bugs } = await serve(t, {
    "/x": () => {
      throw new Error("secret");
    },
  });
  assert.equal(await raw("GET /x HTTP/1.1\r\nHost: x\r\n\r\n"), "");
  assert.equal(bugs.length, 1);
});

test("serveRoutes: a taken port is told with its address", async (t) => {
  const { endpoint } = await serve(t, {});
  const again = serveRoutes(
    { routes: {}, log: nullLogger, onBug: () => undefined },
    { address: { host: "127.0.0.1", port: endpoint.port } },
  );
  await assert.rejects(again, {
    name: "HealthServerError",
    message: /^cannot listen on 127\.0\.0\.1:\d+: .*EADDRINUSE/,
  });
});

test("serveRoutes: connections without a request do not keep others out: the oldest makes room", async (t) => {
  const release = Promise.withResolvers<void>();
  const { endpoint, get } = await serve(t, {
    "/healthz": () => ({ body: "ok" }),
    "/slow": async () => {
      await release.promise;
      return { body: "slow" };
    },
  });
  const slow = get("/slow");
  const sockets = [];
  for (let at = 0; at < 70; at += 1) {
    const socket = connect(endpoint.port, "127.0.0.1").resume();
    socket.on("error", () => undefined);
    t.after(() => socket.destroy());
    await once(socket, "connect");
    sockets.push(socket);
  }
  assert.equal(await get("/healthz"), "200 ok");
  const [first] = sockets;
  if (first?.closed === false) await once(first, "close");
  assert.equal(sockets.at(-1)?.closed, false);
  release.resolve();
  assert.equal(await slow, "200 slow", "a request that is being answered is never ended for others");
});

test("serveRoutes: half a head of a request is ended after some seconds", async (t) => {
  const { endpoint } = await serve(t, {});
  const socket = connect(endpoint.port, "127.0.0.1");
  const started = performance.now();
  socket.write("GET / HTTP/1.1\r\nHost: x");
  assert.match(await text(socket), /^HTTP\/1\.1 408 /);
  assert.ok(performance.now() - started < 10_000);
});
