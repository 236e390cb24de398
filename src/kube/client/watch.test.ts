import assert from "node:assert/strict";
import { test } from "node:test";
import { resources } from "./index.ts";
import { json, pod, rejectsWith, type Script, ScriptedServer } from "./testing/scripted-server.ts";

const stream =
  (...chunks: string[]): Script =>
  async (_seen, response) => {
    response.writeHead(200);
    for (const chunk of chunks)
      await new Promise<void>((resolve) => response.write(chunk, () => setImmediate(resolve)));
    response.end();
  };

const event = (type: string, object: object): string => `${JSON.stringify({ type, object })}\n`;

test("watch: yields events across chunk borders, and ends when the server ends it", async () => {
  const text =
    event("ADDED", pod("ä", "5")) +
    event("BOOKMARK", { metadata: { resourceVersion: "9" } }) +
    event("DELETED", pod("ä", "10"));
  await using server = await ScriptedServer.start(stream(text.slice(0, 20), text.slice(20, 75), text.slice(75)));
  await using client = server.client();
  const got: string[] = [];
  let opened = 0;
  const onOpen = (): void => {
    opened += 1;
  };
  for await (const change of client.watch(resources.pods, { resourceVersion: "4", timeoutSeconds: 60, onOpen })) {
    got.push(
      change.type === "BOOKMARK"
        ? `BOOKMARK ${change.resourceVersion}`
        : `${change.type} ${change.object.metadata.name}`,
    );
  }
  assert.deepEqual(got, ["ADDED ä", "BOOKMARK 9", "DELETED ä"]);
  assert.equal(opened, 1);
  assert.equal(server.seen[0]?.url.search, "?watch=true&allowWatchBookmarks=true&resourceVersion=4&timeoutSeconds=60");
});

async function collect(events: AsyncIterable<unknown>): Promise<number> {
  let count = 0;
  for await (const _event of events) count += 1;
  return count;
}

test("watch: 410 as a status or as an event is gone", async () => {
  const expired = { kind: "Status", code: 410, reason: "Expired", message: "too old resource version" };
  await using server = await ScriptedServer.start(json(expired, 410), stream(event("ERROR", expired)));
  await using client = server.client();
  await rejectsWith(collect(client.watch(resources.pods)), "gone", /too old resource version/);
  await rejectsWith(collect(client.watch(resources.pods)), "gone", /too old resource version/);
});

test("watch: broken off within an event, reset, or senseless: each is an error of ours", async () => {
  const cut: Script = (_seen, response, request) => {
    response.writeHead(200);
    response.write(event("ADDED", pod("a")), () => setImmediate(() => request.socket.resetAndDestroy()));
  };
  await using server = await ScriptedServer.start(
    stream('{"type":"ADDED","obj'),
    cut,
    stream("nonsense\n"),
    stream('{"type":"X"}\n'),
  );
  await using client = server.client();
  await rejectsWith(collect(client.watch(resources.pods)), "unreachable", /in the middle of an event/);
  await rejectsWith(collect(client.watch(resources.pods)), "unreachable", /of the watch failed/);
  await rejectsWith(collect(client.watch(resources.pods)), "bad-response", /not JSON/);
  await rejectsWith(collect(client.watch(resources.pods)), "bad-response", /not a watch event/);
});

test("watch: silence for the idle time ends it", async () => {
  await using server = await ScriptedServer.start((_seen, response) => {
    response.writeHead(200);
    response.write(event("ADDED", pod("a")));
  });
  await using client = server.client();
  await rejectsWith(
    collect(client.watch(resources.pods, { idleTimeoutMs: 50 })),
    "unreachable",
    /the server sent nothing for 50 ms/,
  );
});

test("watch: aborting, and leaving the loop, close the connection", async () => {
  const closed: string[] = [];
  const hang: Script = (seen, response) => {
    response.on("close", () => closed.push(seen.url.searchParams.get("labelSelector") ?? ""));
    response.writeHead(200);
    response.write(event("ADDED", pod("a")));
  };
  await using server = await ScriptedServer.start(hang);
  await using client = server.client();
  const stop = new AbortController();
  const reason = new Error("enough");
  await assert.rejects(async () => {
    for await (const _event of client.watch(resources.pods, { labelSelector: "a", signal: stop.signal }))
      stop.abort(reason);
  }, reason);
  for await (const _event of client.watch(resources.pods, { labelSelector: "b" })) break;
  while (closed.length < 2) await new Promise((resolve) => setImmediate(resolve));
  assert.deepEqual(closed.sort(), ["a", "b"]);
});
