import assert from "node:assert/strict";
import { IncomingMessage, ServerResponse } from "node:http";
import { Socket } from "node:net";
import { test } from "node:test";
import { FakeClock } from "#base/clock";
import { builtinResources } from "../resources/builtin.ts";
import { Store } from "../store/store.ts";
import { EventEncoder, MAX_QUEUED_EVENTS, Watcher } from "./watch.ts";

test("watch: a client that does not read is dropped when too many events wait for it", () => {
  const clock = new FakeClock();
  const store = new Store({ historyLimit: 10 });
  const resource = builtinResources().find((known) => known.kind === "ConfigMap");
  assert.ok(resource !== undefined);
  // No socket is assigned, so nothing that is written ever leaves.
  const response = new ServerResponse(new IncomingMessage(new Socket()));
  const ends: string[] = [];
  const watcher = new Watcher({
    response,
    resource,
    selection: { namespace: "", labels: [], fields: [] },
    form: { as: "object", yaml: false },
    encoder: new EventEncoder(clock),
    clock,
    bookmarks: false,
    initial: [],
    markInitialEnd: false,
    after: 0,
    missed: [],
    timeoutMs: 1000,
    revision: () => store.revision,
    onEnd: (why) => ends.push(why),
  });
  store.collection("configmaps").subscribe(watcher.deliver);
  watcher.start();
  const write = (data: string): void => {
    store.write("configmaps", {
      apiVersion: "v1",
      kind: "ConfigMap",
      metadata: { name: "a", namespace: "n" },
      data: { data },
    });
  };
  write("x".repeat(2 * 1024 * 1024));
  for (let index = 0; index < MAX_QUEUED_EVENTS; index += 1) write("");
  assert.deepEqual(ends, []);
  for (let index = 0; index < 10; index += 1) write("");
  assert.deepEqual(ends, ["slow"]);
  assert.equal(response.destroyed, true);
  assert.equal(clock.pending, 0, "no timer is left behind");
});

test("encoder: watchers of one event share its bytes, which have memory of their own; only the newest events are kept", () => {
  const encoder = new EventEncoder(new FakeClock());
  const resource = builtinResources().find((known) => known.kind === "ConfigMap");
  assert.ok(resource !== undefined);
  const store = new Store({ historyLimit: 10 });
  const form = { as: "object", yaml: false } as const;
  const write = (name: string) =>
    store.write("configmaps", { apiVersion: "v1", kind: "ConfigMap", metadata: { name, namespace: "n" } });
  const first = write("first");
  const bytes = encoder.encode("ADDED", first, resource, form);
  assert.equal(encoder.encode("ADDED", first, resource, form), bytes);
  assert.equal(first.bytes.buffer.byteLength, first.bytes.length);
  assert.match(bytes.toString(), /^\{"type":"ADDED","object":\{.*"name":"first".*\}\}\n$/);
  for (let index = 0; index < 1000; index += 1) encoder.encode("ADDED", write(`c${index}`), resource, form);
  assert.equal(encoder.kept, 256);
  assert.notEqual(encoder.encode("ADDED", first, resource, form), bytes);
});
