import assert from "node:assert/strict";
import { test } from "node:test";
import { FakeClock } from "#base/clock";
import { at, type JsonObject } from "./object/json.ts";
import { configMap, MAPS, TestServer } from "./test-client.ts";

async function revisionOf(api: TestServer): Promise<string> {
  return String(at((await api.ask("GET", MAPS)).body, "metadata", "resourceVersion"));
}

test("watch: without a version it sends the state first, then changes in order", async () => {
  await using api = await TestServer.start();
  await api.ask("POST", MAPS, configMap("a"));
  await using watch = await api.watch(MAPS);
  assert.deepEqual(await watch.take(1), ["ADDED a"]);
  await api.patch(`${MAPS}/a`, "merge-patch+json", { data: { x: "1" } });
  await api.ask("POST", MAPS, configMap("b"));
  await api.ask("DELETE", `${MAPS}/a`);
  assert.deepEqual(await watch.take(3), ["MODIFIED a", "ADDED b", "DELETED a"]);
});

test("watch: from a version it sends all changes since then, each once", async () => {
  await using api = await TestServer.start();
  await api.ask("POST", MAPS, configMap("old"));
  const revision = await revisionOf(api);
  await api.ask("POST", MAPS, configMap("missed"));
  await using watch = await api.watch(`${MAPS}?resourceVersion=${revision}`);
  await api.ask("POST", MAPS, configMap("live"));
  assert.deepEqual(await watch.take(2), ["ADDED missed", "ADDED live"]);
});

test("watch: a selector turns changes into additions and deletions", async () => {
  await using api = await TestServer.start();
  await using watch = await api.watch(`${MAPS}?labelSelector=on&resourceVersion=${await revisionOf(api)}`);
  await api.ask("POST", MAPS, configMap("a"));
  await api.patch(`${MAPS}/a`, "merge-patch+json", { metadata: { labels: { on: "yes" } } });
  await api.patch(`${MAPS}/a`, "merge-patch+json", { data: { x: "1" } });
  await api.patch(`${MAPS}/a`, "merge-patch+json", { metadata: { labels: null } });
  assert.deepEqual(await watch.take(3), ["ADDED a", "MODIFIED a", "DELETED a"]);
});

test("watch: a version whose history is removed is answered with 410", async () => {
  await using api = await TestServer.start();
  await api.ask("POST", MAPS, configMap("a"));
  const revision = await revisionOf(api);
  await api.ask("POST", MAPS, configMap("b"));
  api.server.compact();
  const gone = await api.ask("GET", `${MAPS}?watch=1&resourceVersion=${revision}`);
  assert.deepEqual([gone.status, gone.body["reason"]], [410, "Expired"]);
});

test("watch: from a version of the future it is silent until that version is reached", async () => {
  const clock = new FakeClock();
  await using api = await TestServer.start({ clock });
  const future = Number(await revisionOf(api)) + 2;
  await using watch = await api.watch(`${MAPS}?resourceVersion=${future}&allowWatchBookmarks=true`);
  await api.ask("POST", MAPS, configMap("a"));
  await clock.advance(61_000);
  await api.ask("POST", MAPS, configMap("b"));
  await api.ask("POST", MAPS, configMap("c"));
  assert.deepEqual(await watch.take(1), ["ADDED c"]);
  await clock.advance(60_000);
  const bookmark = await watch.next();
  assert.deepEqual(
    [bookmark?.type, at(bookmark?.object, "metadata", "resourceVersion")],
    ["BOOKMARK", String(future + 1)],
  );
});

test("watch: a streaming list of a version of the future is refused with a time to come again", async () => {
  await using api = await TestServer.start();
  const query = "watch=1&resourceVersion=999999&sendInitialEvents=true&resourceVersionMatch=NotOlderThan";
  const answer = await api.ask("GET", `${MAPS}?${query}`);
  assert.equal(answer.status, 504);
  assert.equal(at(answer.body, "details", "retryAfterSeconds"), 1);
  assert.match(String(answer.body["message"]), /Too large resource version/);
});

test("watch: bookmarks come with time, and the watch ends when its time is over", async () => {
  const clock = new FakeClock();
  await using api = await TestServer.start({ clock });
  const revision = await revisionOf(api);
  await using watch = await api.watch(`${MAPS}?resourceVersion=${revision}&allowWatchBookmarks=true&timeoutSeconds=90`);
  await clock.advance(61_000);
  const bookmark = await watch.next();
  assert.deepEqual([bookmark?.type, at(bookmark?.object, "metadata", "resourceVersion")], ["BOOKMARK", revision]);
  await clock.advance(30_000);
  assert.equal((await watch.next())?.type, "BOOKMARK");
  assert.equal(await watch.next(), undefined);
});

test("watch: a streaming list sends the state and a bookmark that marks its end", async () => {
  await using api = await TestServer.start();
  await api.ask("POST", MAPS, configMap("a"));
  const query = "sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true";
  await using watch = await api.watch(`${MAPS}?${query}`);
  assert.deepEqual(await watch.take(1), ["ADDED a"]);
  const bookmark = await watch.next();
  assert.equal(at(bookmark?.object, "metadata", "annotations", "k8s.io/initial-events-end"), "true");
});

test("watch: faults drop streams, or expire them with an ERROR of 410", async () => {
  await using api = await TestServer.start();
  await using dropped = await api.watch(`${MAPS}?resourceVersion=${await revisionOf(api)}`);
  assert.equal(api.server.faults.dropWatches({ resource: "configmaps" }), 1);
  await assert.rejects(dropped.next());
  await using expired = await api.watch(`${MAPS}?resourceVersion=${await revisionOf(api)}`);
  assert.equal(api.server.faults.expireWatches({ resource: "pods" }), 0);
  assert.equal(api.server.faults.expireWatches(), 1);
  const event = await expired.next();
  assert.deepEqual([event?.type, event?.object["code"]], ["ERROR", 410]);
  assert.equal(await expired.next(), undefined);
});

test("lists: chunks are one consistent state although others write, and expire with a token to go on", async () => {
  await using api = await TestServer.start();
  for (const name of ["a", "b", "c", "d"]) await api.ask("POST", MAPS, configMap(name));
  const first = await api.ask("GET", `${MAPS}?limit=2`);
  const token = String(at(first.body, "metadata", "continue"));
  await api.ask("DELETE", `${MAPS}/c`);
  await api.ask("POST", MAPS, configMap("cc"));
  const names = (body: JsonObject): unknown[] =>
    (body["items"] as JsonObject[]).map((item) => at(item, "metadata", "name"));
  const second = await api.ask("GET", `${MAPS}?limit=2&continue=${token}`);
  assert.deepEqual(
    [names(first.body), names(second.body)],
    [
      ["a", "b"],
      ["c", "d"],
    ],
  );
  assert.equal(at(second.body, "metadata", "resourceVersion"), at(first.body, "metadata", "resourceVersion"));
  api.server.compact();
  await api.ask("POST", MAPS, configMap("e"));
  const expired = await api.ask("GET", `${MAPS}?limit=2&continue=${token}`);
  assert.deepEqual([expired.status, expired.body["reason"]], [410, "Expired"]);
  const rest = await api.ask("GET", `${MAPS}?continue=${String(at(expired.body, "metadata", "continue"))}`);
  assert.deepEqual(names(rest.body), ["cc", "d", "e"]);
});

test("faults over HTTP: statuses, lost responses and cut connections happen as requested", async () => {
  await using api = await TestServer.start({ faultsOverHttp: true });
  const rule = (match: JsonObject, action: JsonObject) =>
    api.ask("POST", "/lab/faults", { match: { times: 1, ...match }, action });
  await rule({ verb: "list" }, { status: 429, retryAfterSeconds: 3 });
  const limited = await api.ask("GET", MAPS);
  assert.deepEqual([limited.status, limited.headers.get("retry-after")], [429, "3"]);
  await rule({ verb: "create" }, { cut: "lost-response" });
  await assert.rejects(api.ask("POST", MAPS, configMap("lost")));
  assert.equal((await api.ask("GET", `${MAPS}/lost`)).status, 200);
  await rule({ verb: "create" }, { cut: "drop-connection" });
  await assert.rejects(api.ask("POST", MAPS, configMap("never")));
  assert.equal((await api.ask("GET", `${MAPS}/never`)).status, 404);
  assert.equal((await api.ask("POST", "/lab/faults", { action: { explode: true } })).status, 400);
  assert.deepEqual((await api.ask("GET", "/lab/faults")).body["rules"], []);
});
