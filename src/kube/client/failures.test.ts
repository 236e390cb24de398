import assert from "node:assert/strict";
import { test } from "node:test";
import { FakeClock, systemClock } from "#base/clock";
import { KubeClient, type KubeConnection, type KubeErrorCode, resources, staticConnection } from "./index.ts";
import { json, pod, rejectsWith, reset, type Script, ScriptedServer, status } from "./testing/scripted-server.ts";

test("errors: each HTTP status has its code, with the server's words and Status", async () => {
  const cases: [number, string, KubeErrorCode][] = [
    [400, "BadRequest", "invalid"],
    [403, "Forbidden", "forbidden"],
    [404, "NotFound", "not-found"],
    [409, "AlreadyExists", "already-exists"],
    [409, "Conflict", "conflict"],
    [410, "Expired", "gone"],
    [422, "Invalid", "invalid"],
    [500, "InternalError", "server"],
    [503, "ServiceUnavailable", "server"],
  ];
  for (const [code, reason, expected] of cases) {
    await using server = await ScriptedServer.start(status(code, reason));
    await using client = server.client();
    const work = client.create(resources.pods, { metadata: { name: "a", namespace: "default" } });
    await rejectsWith(work, expected, /^Cannot create pods default\/a: said the server \(\d+ \w+ from 127/);
    await assert.rejects(work, { httpStatus: code });
    assert.equal(server.seen.length, 1, `${code} of a write is not retried`);
  }
});

test("errors: an answer that is not JSON keeps its first line", async () => {
  await using server = await ScriptedServer.start((_seen, response) => {
    response.writeHead(502);
    response.end("<html>bad gateway\nmore");
  });
  await using client = server.client();
  await rejectsWith(client.get(resources.nodes, { name: "n" }), "server", /<html>bad gateway \(502/);
});

test("errors: a truncated or senseless success is not taken for an object", async () => {
  const bodies: [string, RegExp][] = [
    ['{"metadata":{"na', /not JSON/],
    ["[]", /not an object/],
    ['{"kind":"Pod"}', /no metadata.name/],
  ];
  for (const [body, pattern] of bodies) {
    await using server = await ScriptedServer.start((_seen, response) => response.end(body));
    await using client = server.client();
    await rejectsWith(client.get(resources.nodes, { name: "n" }), "bad-response", pattern);
  }
});

test("errors: a body that breaks off is unreachable, for a write without a second try", async () => {
  await using server = await ScriptedServer.start((_seen, response, request) => {
    response.writeHead(200, { "content-length": "1000" });
    response.write('{"metadata":', () => request.socket.destroy());
  });
  await using client = server.client();
  const work = client.create(resources.nodes, { metadata: { name: "n" } });
  await rejectsWith(work, "unreachable", /bytes of the answer|of the watch failed|did not answer/);
  assert.equal(server.seen.length, 1);
});

test("retry: a read is sent again after a connection reset, a write is not", async () => {
  await using server = await ScriptedServer.start(reset, json(pod("a")), reset);
  await using client = server.client();
  assert.equal((await client.get(resources.pods, { name: "a", namespace: "default" })).metadata.name, "a");
  const write = client.create(resources.pods, { metadata: { name: "a", namespace: "default" } });
  await rejectsWith(write, "unreachable", /create pods default\/a/);
  assert.equal(server.seen.length, 3);
});

test("retry: 429 is sent again after Retry-After, writes too", async () => {
  const busy = json({ kind: "Status", reason: "TooManyRequests" }, 429, { "retry-after": "0" });
  await using server = await ScriptedServer.start(busy, busy, json(pod("a")));
  await using client = server.client();
  await client.create(resources.pods, { metadata: { name: "a", namespace: "default" } });
  assert.equal(server.seen.length, 3);
});

test("retry: a Retry-After beyond the call's deadline is returned at once", async () => {
  const busy = json({ kind: "Status", reason: "TooManyRequests" }, 429, { "retry-after": "40" });
  await using server = await ScriptedServer.start(busy);
  await using client = server.client();
  await assert.rejects(client.get(resources.nodes, { name: "n" }), { code: "too-many-requests", retryAfterMs: 40_000 });
  assert.equal(server.seen.length, 1);
});

test("retry: clients with the same Retry-After come back spread", async () => {
  const busy = json({ kind: "Status", reason: "TooManyRequests" }, 429, { "retry-after": "1" });
  const waits: number[] = [];
  for (const random of [0, 0.5]) {
    await using server = await ScriptedServer.start(busy, json(pod("a")));
    const clock = new FakeClock();
    await using client = server.client({ clock, random: () => random });
    const answer = client.get(resources.pods, { name: "a", namespace: "default" });
    while (server.seen.length < 1) await new Promise((resolve) => setImmediate(resolve));
    while (server.seen.length < 2) await clock.advance(100);
    await answer;
    waits.push(clock.monotonic());
  }
  assert.ok((waits[0] ?? 0) >= 1000 && (waits[1] ?? 0) >= 1500, `${waits}`);
});

test("retry: 401 makes the connection get new credentials once", async () => {
  await using server = await ScriptedServer.start(
    status(401, "Unauthorized"),
    json(pod("a")),
    status(401, "Unauthorized"),
  );
  let token = "old";
  const base = staticConnection({ server: server.url });
  const connection: KubeConnection = {
    ...base,
    credentials: async () => ({ headers: { authorization: `Bearer ${token}` } }),
    expire: () => {
      token = "new";
    },
  };
  await using client = new KubeClient(connection, { clock: systemClock });
  await client.get(resources.pods, { name: "a", namespace: "default" });
  assert.deepEqual(
    server.seen.map((seen) => seen.headers.authorization),
    ["Bearer old", "Bearer new"],
  );
  await rejectsWith(client.get(resources.nodes, { name: "n" }), "unauthorized", /401/);
  assert.equal(server.seen.length, 4);
});

test("timeout: a server that does not answer, or only begins to, is given up", async () => {
  const silent: Script = () => undefined;
  const slow: Script = (_seen, response) => {
    response.writeHead(200);
    response.write("{");
  };
  for (const script of [silent, slow]) {
    await using server = await ScriptedServer.start(script);
    await using client = server.client();
    await rejectsWith(client.get(resources.nodes, { name: "n" }, { timeoutMs: 60 }), "timeout", /in 60 ms/);
  }
});

test("abort: the call rejects with the signal's reason", async () => {
  await using server = await ScriptedServer.start(() => stop.abort(reason));
  await using client = server.client();
  const stop = new AbortController();
  const reason = new Error("enough");
  await assert.rejects(client.get(resources.nodes, { name: "n" }, { signal: stop.signal }), reason);
});

test("unreachable: a port without a listener", async () => {
  let url = "";
  {
    await using server = await ScriptedServer.start(reset);
    url = server.url;
  }
  await using client = new KubeClient(staticConnection({ server: url }), { clock: systemClock });
  await rejectsWith(client.get(resources.nodes, { name: "n" }), "unreachable", /ECONNREFUSED/);
});
