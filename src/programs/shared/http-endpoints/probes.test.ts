import assert from "node:assert/strict";
import { once } from "node:events";
import { connect } from "node:net";
import { text } from "node:stream/consumers";
import { test } from "node:test";
import { Health } from "#base/health";
import { nullLogger as log } from "#base/log";
import { createRegistry } from "#base/metrics";
import { HealthServerError, serveHealth, serveMetrics } from "./index.ts";

const LOOPBACK = { host: "127.0.0.1", port: 0 };

/** Sends bytes as they are and reads until the end. */
async function raw(port: number, request: string): Promise<string> {
  const socket = connect(port, "127.0.0.1");
  socket.end(request);
  return text(socket);
}

test("serveHealth: /healthz answers, /readyz names the parts that are not ready, verbose shows all", async () => {
  const health = new Health();
  const part = health.part("ipam");
  await using server = await serveHealth({ health, log }, { address: LOOPBACK });
  const get = async (path: string): Promise<[number, string]> => {
    const answer = await fetch(`http://127.0.0.1:${server.port}${path}`);
    return [answer.status, await answer.text()];
  };
  assert.deepEqual(await get("/healthz"), [200, "ok\n"]);
  assert.deepEqual(await get("/readyz"), [503, "[-]ipam starting \nnot ready\n"]);
  part.ok("3 blocks");
  assert.deepEqual(await get("/readyz"), [200, "ok\n"]);
  assert.deepEqual(await get("/readyz?verbose"), [200, "[+]ipam ok 3 blocks\nok\n"]);
  assert.equal((await get("/other"))[0], 404);
  for (const path of ["/healthz", "/readyz", "/readyz?verbose", "/other"]) {
    const { headers } = await fetch(`http://127.0.0.1:${server.port}${path}`);
    assert.equal(headers.get("cache-control"), "no-store", path);
  }
});

test("serveHealth: invalid targets get an answer and do no harm", async () => {
  await using server = await serveHealth({ health: new Health(), log }, { address: LOOPBACK });
  for (const target of ["//", "http://[", "*", "/%ff%zz?&&&", "//[::1"]) {
    const answer = await raw(server.port, `GET ${target} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n`);
    assert.match(answer, /^HTTP\/1\.1 40[04] /, target);
  }
  assert.equal((await fetch(`http://127.0.0.1:${server.port}/healthz`)).status, 200);
});

for (const [what, sent] of [
  ["silent", ""],
  ["slow", "GET /healthz HTTP/1.1\r\nHost: x\r\n"],
] as const) {
  test(`serveHealth, serveMetrics: ${what} clients, as many as there can be and more, keep out no probe`, async (t) => {
    await using health = await serveHealth({ health: new Health(), log }, { address: LOOPBACK });
    await using metrics = await serveMetrics(
      { registry: createRegistry(), log },
      { metricsAddr: LOOPBACK, metricsFrom: [] },
    );
    for (const [{ port }, path] of [
      [health, "healthz"],
      [metrics, "metrics"],
    ] as const) {
      const sockets = Array.from({ length: 200 }, () => connect(port, "127.0.0.1").on("error", () => undefined));
      t.after(() => sockets.forEach((socket) => void socket.destroy()));
      await Promise.all(sockets.map((socket) => once(socket, "connect")));
      for (const socket of sockets) socket.write(sent);
      for (let probe = 0; probe < 5; probe += 1) {
        const answer = await fetch(`http://127.0.0.1:${port}/${path}`, { signal: AbortSignal.timeout(1000) });
        assert.equal(answer.status, 200);
        await answer.text();
      }
    }
  });
}

test("serveMetrics: the registry in text format; the error for a taken port has its address", async () => {
  await using server = await serveMetrics(
    { registry: createRegistry(), log },
    { metricsAddr: LOOPBACK, metricsFrom: [] },
  );
  const answer = await fetch(`http://127.0.0.1:${server.port}/metrics`);
  assert.match(await answer.text(), /process_resident_memory_bytes \d/);
  const taken = { host: "127.0.0.1", port: server.port };
  await assert.rejects(
    serveMetrics({ registry: createRegistry(), log }, { metricsAddr: taken, metricsFrom: [] }),
    (error) => {
      assert.ok(error instanceof HealthServerError);
      assert.match(error.message, new RegExp(`cannot listen on 127.0.0.1:${server.port}: .*EADDRINUSE`));
      return true;
    },
  );
});
