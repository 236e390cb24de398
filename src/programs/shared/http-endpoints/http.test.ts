import assert from "node:assert/strict";
import { once } from "node:events";
import { connect } from "node:net";
import { text } from "node:stream/consumers";
import { test } from "node:test";
import { nullLogger } from "#base/log";
import { serveRoutes } from "./http.ts";
import { serve } from "./testing/serve.ts";

test("serveRoutes: targets that are no path, and names of object members, are not found", async (t) => {
  const { raw, bugs } = await serve(t, { "/x": () => ({ body: "x" }) });
  for (const target of ["//", "*", "/constructor", "/__proto__", "http://[", "/x/y"]) {
    assert.match(
      await raw(`GET ${target} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n`),
      /^HTTP\/1\.1 40[04] /,
      target,
    );
  }
  assert.deepEqual(bugs, []);
});

test("serveRoutes: a route that throws is a bug, and its client gets no reply", async (t) => {
  const { raw, bugs } = await serve(t, {
    "/x": () => {
      throw new Error("secret");
    },
  });
  assert.equal(await raw("GET /x HTTP/1.1\r\nHost: localhost\r\n\r\n"), "");
  assert.equal(bugs.length, 1);
});

test("serveRoutes: the error names an address that is in use", async (t) => {
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

test("serveRoutes: connections without a request do not keep others out: the oldest is closed", async (t) => {
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

test("serveRoutes: an incomplete request head is ended after some seconds", async (t) => {
  const { endpoint } = await serve(t, {});
  const socket = connect(endpoint.port, "127.0.0.1");
  const started = performance.now();
  socket.write("GET / HTTP/1.1\r\nHost: x");
  assert.match(await text(socket), /^HTTP\/1\.1 408 /);
  assert.ok(performance.now() - started < 10_000);
});
