import assert from "node:assert/strict";
import { test } from "node:test";
import { resources } from "./index.ts";
import { json, pod, rejectsWith, type Script, ScriptedServer, status } from "./testing/scripted-server.ts";

const page = (names: string[], version: string, token?: string): Script =>
  json({
    kind: "PodList",
    metadata: { resourceVersion: version, ...(token === undefined ? {} : { continue: token }) },
    items: names.map((name) => ({ metadata: { name, namespace: "default", uid: name, resourceVersion: "1" } })),
  });

test("listAll: follows continue tokens and completes kind and apiVersion of the items", async () => {
  await using server = await ScriptedServer.start(page(["a", "b"], "7", "next"), page(["c"], "7"));
  await using client = server.client();
  const { items, resourceVersion } = await client.listAll(resources.pods, { limit: 2, labelSelector: "x in (y,z)" });
  assert.deepEqual(
    items.map((item) => `${item.apiVersion} ${item.kind} ${item.metadata.name}`),
    ["v1 Pod a", "v1 Pod b", "v1 Pod c"],
  );
  assert.equal(resourceVersion, "7");
  assert.equal(server.seen[0]?.url.search, "?labelSelector=x+in+%28y%2Cz%29&limit=2");
  assert.equal(server.seen[1]?.url.searchParams.get("continue"), "next");
});

test("listAll: an empty list whose items are null, as kube-apiserver writes one of metadata alone, is empty", async () => {
  const none = { kind: "PartialObjectMetadataList", metadata: { resourceVersion: "7" }, items: null };
  await using server = await ScriptedServer.start(json(none));
  await using client = server.client();
  const { items, resourceVersion } = await client.listAll(resources.nodes, { metadataOnly: true });
  assert.deepEqual([items, resourceVersion], [[], "7"]);
});

test("listAll: a snapshot that expires midway is read again from the start", async () => {
  await using server = await ScriptedServer.start(
    page(["a"], "7", "t"),
    status(410, "Expired"),
    page(["a"], "9", "u"),
    page(["b"], "9"),
  );
  await using client = server.client();
  const { items, resourceVersion } = await client.listAll(resources.pods);
  assert.deepEqual([items.length, resourceVersion, server.seen.length], [2, "9", 4]);
});

test("listAll: a failure that is not an expired snapshot is not tried again", async () => {
  await using server = await ScriptedServer.start(page(["a"], "7", "t"), status(403, "Forbidden"));
  await using client = server.client();
  await rejectsWith(client.listAll(resources.pods), "forbidden", /403/);
  assert.equal(server.seen.length, 2);
});

test("listPages: a server that repeats its token does not hold us for ever", async () => {
  await using server = await ScriptedServer.start(page(["a"], "7", "t"));
  await using client = server.client();
  await rejectsWith(client.listAll(resources.pods), "bad-response", /sent the same page twice/);
});

test("list: an item without a name is left out and counted, and keeps no other away", async () => {
  const items = [null, pod("a"), {}, { metadata: { name: 5 } }, [], pod("b")];
  await using server = await ScriptedServer.start(json({ metadata: { resourceVersion: "1" }, items }));
  await using client = server.client();
  const page = await client.list(resources.pods);
  assert.deepEqual([page.items.map(({ metadata }) => metadata.name), page.nameless], [["a", "b"], 4]);
});
