import assert from "node:assert/strict";
import { test } from "node:test";
import { Deferred } from "#base/async";
import { AUTH, FrontBed, POD, TIMEOUT } from "../testing/front-bed.ts";
import { settingsOf, TestClient } from "../testing/proxy-fixtures.ts";

test(
  "HttpConnection: bytes behind the head are the first of the tunnel; nothing is lost while dialling",
  TIMEOUT,
  async (t) => {
    const bed = await FrontBed.open(t);
    const gate = new Deferred();
    const { dial } = bed;
    bed.dial = async (request) => {
      await gate.promise;
      return await dial(request);
    };
    const client = await TestClient.to(t, bed.port);
    client.write("CONNECT a.example:443 HTTP/1.1\r\n\r\none ");
    while (bed.dials.length === 0) await new Promise((resolve) => setImmediate(resolve));
    client.write("two ");
    client.write(`${"x".repeat(300_000)} end`);
    gate.resolve();
    await client.read(" end");
    assert.equal(client.text, `HTTP/1.1 200 OK\r\n\r\none two ${"x".repeat(300_000)} end`);
  },
);

test(
  "HttpConnection: a client that leaves while dialling ends the dial; no failure, no socket, no place is left",
  TIMEOUT,
  async (t) => {
    for (const how of ["destroy", "reset", "end"] as const) {
      const bed = await FrontBed.open(t);
      const aborted = new Deferred();
      bed.dial = ({ signal }) =>
        new Promise((_resolve, reject) => {
          signal.addEventListener("abort", () => {
            aborted.resolve();
            reject(signal.reason);
          });
        });
      const client = await TestClient.to(t, bed.port);
      client.write("CONNECT a.example:443 HTTP/1.1\r\n\r\n");
      while (bed.dials.length === 0) await new Promise((resolve) => setImmediate(resolve));
      assert.deepEqual([bed.limiter.tunnels, bed.limiter.dialling], [1, 1]);
      if (how === "end") client.socket.end();
      else if (how === "reset") client.socket.resetAndDestroy();
      else client.socket.destroy();
      await aborted.promise;
      while (bed.limiter.tunnels > 0) await new Promise((resolve) => setImmediate(resolve));
      assert.deepEqual([bed.counters.dialFailures, bed.limiter.dialling], [0, 0], how);
    }
  },
);

test(
  "HttpConnection: at the limit of tunnels there is a 503 at once, and a tunnel that ends is given back",
  TIMEOUT,
  async (t) => {
    const { limits } = settingsOf();
    const bed = await FrontBed.open(t, { limits: { ...limits, tunnels: 1 } });
    const first = await TestClient.to(t, bed.port);
    first.write("CONNECT a.example:443 HTTP/1.1\r\n\r\n");
    await first.read("200");
    const refused = await bed.ask(t, "CONNECT a.example:443 HTTP/1.1\r\n\r\n");
    assert.match(refused, /^HTTP\/1\.1 503 .*Retry-After: 1\r\nX|^HTTP\/1\.1 503 .*X-Uplink-Reason: overload\r\n/s);
    assert.equal(bed.counters.overload, 1);
    first.socket.resetAndDestroy();
    while (bed.limiter.tunnels > 0) await new Promise((resolve) => setImmediate(resolve));
    assert.match(await bed.ask(t, "CONNECT a.example:443 HTTP/1.1\r\n\r\n"), /^HTTP\/1\.1 200 /);
    bed.openDescriptors = 95;
    bed.limiter.descriptors.opened(100);
    assert.match(await bed.ask(t, "CONNECT a.example:443 HTTP/1.1\r\n\r\n"), /^HTTP\/1\.1 503 /);
  },
);

test("HttpConnection: a pod has 32 tunnels, and refused ones do not count", TIMEOUT, async (t) => {
  const { limits } = settingsOf();
  const bed = await FrontBed.open(t, { limits: { ...limits, podTunnelsPerClient: 2, podConnectsPerSecond: 100 } }, POD);
  const open = async (): Promise<TestClient> => {
    const client = await TestClient.to(t, bed.port);
    client.write(`CONNECT a.example:443 HTTP/1.1\r\n${AUTH}\r\n`);
    await client.read("\r\n\r\n");
    return client;
  };
  const [one, two, three] = [await open(), await open(), await open()];
  assert.deepEqual(
    [one, two, three].map(({ text }) => text.slice(9, 12)),
    ["200", "200", "503"],
  );
  one.socket.resetAndDestroy();
  while (bed.tunnelService.size > 1) await new Promise((resolve) => setImmediate(resolve));
  assert.match((await open()).text, /^HTTP\/1\.1 200/);
});

test("HttpConnection: while draining requests are refused, and tunnels go on", TIMEOUT, async (t) => {
  const bed = await FrontBed.open(t);
  const client = await TestClient.to(t, bed.port);
  client.write("CONNECT a.example:443 HTTP/1.1\r\n\r\n");
  await client.read("200");
  const waiting = await TestClient.to(t, bed.port);
  const kept = await TestClient.to(t, bed.port);
  kept.write("GET /healthz HTTP/1.1\r\n\r\n");
  await kept.read("{}");
  bed.isDraining = true;
  kept.write("CONNECT a.example:443 HTTP/1.1\r\n\r\n");
  assert.match((await kept.read("draining")).slice(kept.text.indexOf("{}")), / 503 /);
  waiting.write("GET /healthz HTTP/1.1\r\n\r\n");
  assert.match(await waiting.read("\r\n\r\n"), /^HTTP\/1\.1 503 .*Connection: close/s);
  client.write("still here");
  await client.read("still here");
});

test(
  "HttpConnection: a tunnel ends after the silence that its destination may have, whatever the host is called",
  TIMEOUT,
  async (t) => {
    const { tunnel } = settingsOf();
    const idleTimeoutOverrides = { "slow.example": 60_000, "slow.example:8443": 90_000 };
    const bed = await FrontBed.open(t, { tunnel: { ...tunnel, idleTimeoutMs: 30_000, idleTimeoutOverrides } });
    const idleOf: Record<string, number> = {};
    for (const target of [
      "a.example:443",
      "constructor:443",
      "__proto__:443",
      "slow.example:443",
      "slow.example:8443",
    ]) {
      const client = await TestClient.to(t, bed.port);
      client.write(`CONNECT ${target} HTTP/1.1\r\n\r\n`);
      await client.read("200");
      const since = bed.clock.monotonic();
      while (!client.isClosed && bed.clock.monotonic() - since < 120_000) await bed.clock.advance(500);
      idleOf[target] = Math.floor((bed.clock.monotonic() - since) / 10_000) * 10;
    }
    assert.deepEqual(idleOf, {
      "a.example:443": 30,
      "constructor:443": 30,
      "__proto__:443": 30,
      "slow.example:443": 60,
      "slow.example:8443": 90,
    });
  },
);

test("HttpConnection: a refusal by policy is no failed dial", TIMEOUT, async (t) => {
  const bed = await FrontBed.open(t);
  assert.match(await bed.ask(t, "CONNECT 127.0.0.1:443 HTTP/1.1\r\n\r\n"), /^HTTP\/1\.1 403 /);
  assert.deepEqual([bed.counters.dialFailures, bed.counters.denied, bed.counters.lastError], [0, 1, undefined]);
});
