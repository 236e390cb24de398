import assert from "node:assert/strict";
import { test } from "node:test";
import { findObject, type RequestSample, resources } from "./index.ts";
import { json, pod, rejectsWith, reset, ScriptedServer, status } from "./testing/scripted-server.ts";

test("get: requests the object's path with the token", async () => {
  await using server = await ScriptedServer.start(json(pod("a")));
  await using client = server.client();
  const got = await client.get(resources.pods, { name: "a", namespace: "default" });
  assert.equal(got.metadata.uid, "uid-a");
  assert.equal(server.seen[0]?.url.pathname, "/api/v1/namespaces/default/pods/a");
  assert.equal(server.seen[0]?.headers.authorization, "Bearer t0ken");
});

test("get: a name that would leave the path is refused without a request", async () => {
  await using server = await ScriptedServer.start(json(pod("a")));
  await using client = server.client();
  for (const name of ["", "..", "a/b", "a%2f"]) {
    await rejectsWith(client.get(resources.pods, { name, namespace: "default" }), "invalid", /cannot be the name/);
  }
  await rejectsWith(client.get(resources.pods, { name: "a" }), "invalid", /are namespaced/);
  await rejectsWith(client.get(resources.nodes, { name: "a", namespace: "x" }), "invalid", /cluster-scoped/);
  assert.equal(server.seen.length, 0);
});

test("findObject: not found is undefined, other failures are not hidden", async () => {
  await using server = await ScriptedServer.start(status(404, "NotFound"), status(403, "Forbidden"));
  await using client = server.client();
  assert.equal(await findObject(client, resources.nodes, { name: "n" }), undefined);
  await rejectsWith(findObject(client, resources.nodes, { name: "n" }), "forbidden", /403/);
});

test("patch: each type has its media type, apply its manager and the object's identity", async () => {
  await using server = await ScriptedServer.start(json(pod("a")));
  await using client = server.client();
  const ref = { name: "a", namespace: "default" };
  await client.patch(resources.pods, ref, { type: "json", operations: [{ op: "remove", path: "/metadata/labels/x" }] });
  await client.patch(
    resources.pods,
    ref,
    { type: "merge", body: { metadata: { labels: { x: null } } } },
    { subresource: "status" },
  );
  await client.patch(
    resources.pods,
    ref,
    { type: "strategic", body: { spec: {} } },
    { dryRun: true, fieldManager: "me" },
  );
  await client.patch(resources.pods, ref, {
    type: "apply",
    body: { metadata: { labels: { a: "b" } } },
    fieldManager: "coil",
    force: true,
  });
  assert.deepEqual(
    server.seen.map((seen) => [seen.headers["content-type"], seen.url.pathname.slice(27) + seen.url.search]),
    [
      ["application/json-patch+json", "pods/a"],
      ["application/merge-patch+json", "pods/a/status"],
      ["application/strategic-merge-patch+json", "pods/a?fieldManager=me&dryRun=All"],
      ["application/apply-patch+yaml", "pods/a?fieldManager=coil&force=true"],
    ],
  );
  assert.deepEqual(JSON.parse(server.seen[3]?.body ?? ""), {
    apiVersion: "v1",
    kind: "Pod",
    metadata: { labels: { a: "b" }, name: "a", namespace: "default" },
  });
});

test("delete: sends preconditions and distinguishes deleted from being deleted", async () => {
  await using server = await ScriptedServer.start(json({ kind: "Status", status: "Success" }), json(pod("a")));
  await using client = server.client();
  const ref = { name: "a", namespace: "default" };
  const gone = await client.delete(resources.pods, ref, {
    preconditions: { uid: "u", resourceVersion: "3" },
    propagationPolicy: "Foreground",
  });
  assert.equal(gone.kind, "status");
  assert.deepEqual(JSON.parse(server.seen[0]?.body ?? ""), {
    apiVersion: "v1",
    kind: "DeleteOptions",
    preconditions: { uid: "u", resourceVersion: "3" },
    propagationPolicy: "Foreground",
  });
  const going = await client.delete(resources.pods, ref);
  assert.equal(going.kind === "object" && going.object.metadata.name, "a");
});

test("metrics: each request on the wire is reported, failures as <error>", async () => {
  await using server = await ScriptedServer.start(reset, json(pod("a")), status(404, "NotFound"));
  const samples: RequestSample[] = [];
  await using client = server.client({ onRequest: (sample) => samples.push(sample) });
  await client.get(resources.pods, { name: "a", namespace: "default" });
  await findObject(client, resources.nodes, { name: "n" });
  assert.deepEqual(
    samples.map(({ method, code }) => `${method} ${code}`),
    ["GET <error>", "GET 200", "GET 404"],
  );
});

test("rateLimit: calls past the burst wait", async () => {
  await using server = await ScriptedServer.start(json(pod("a")));
  await using client = server.client({ rateLimit: { qps: 0.001, burst: 1 } });
  await client.get(resources.nodes, { name: "n" });
  await rejectsWith(client.get(resources.nodes, { name: "n" }, { timeoutMs: 30 }), "timeout", /30 ms/);
  assert.equal(server.seen.length, 1);
});

test("fetch: any status is an answer, with the server's time; nothing is repeated, and a long body is refused", async () => {
  const date = "Wed, 25 Nov 2026 00:00:00 GMT";
  await using server = await ScriptedServer.start((_seen, response) => {
    response.writeHead(503, { date, "retry-after": "1" });
    response.end("not ready\n");
  });
  await using client = server.client();
  assert.deepEqual(await client.fetch("/x", { maxBytes: 100 }), {
    status: 503,
    text: "not ready\n",
    dateMs: Date.parse(date),
  });
  assert.equal(server.seen.length, 1);
  await rejectsWith(client.fetch("/x", { maxBytes: 5 }), "bad-response", /longer than 5 bytes/);
});
