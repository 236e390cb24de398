import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "fast-check";
import type { KubeObject } from "../object/meta.ts";
import { Store } from "./store.ts";

function object(namespace: string, name: string, value = 0): KubeObject {
  return { apiVersion: "v1", kind: "Thing", metadata: { name, namespace }, value };
}

test("store: every commit has a higher revision than the one before, across collections", () => {
  const store = new Store({ historyLimit: 10 });
  const revisions = [
    store.write("a", object("n", "x")),
    store.write("b", object("n", "x")),
    store.write("a", object("n", "x", 1)),
  ].map((entry) => entry.revision);
  assert.deepEqual(
    revisions,
    [...revisions].sort((x, y) => x - y),
  );
  assert.equal(new Set(revisions).size, 3);
  assert.equal(store.collection("a").get("n/x")?.object.metadata.resourceVersion, String(revisions[2]));
});

test("store: a namespace's list has its own objects only, in order of name", () => {
  const store = new Store({ historyLimit: 10 });
  for (const [namespace, name] of [
    ["b", "2"],
    ["a", "9"],
    ["b", "1"],
    ["bb", "0"],
  ] as const)
    store.write("t", object(namespace, name));
  const names = (prefix: string): string[] =>
    store
      .collection("t")
      .list(prefix)
      .map((entry) => entry.key);
  assert.deepEqual(names("b/"), ["b/1", "b/2"]);
  assert.deepEqual(names(""), ["a/9", "b/1", "b/2", "bb/0"]);
});

test("store: history is bounded, and removed entries are below the floor", () => {
  const store = new Store({ historyLimit: 5 });
  for (let index = 0; index < 100; index += 1) store.write("t", object("n", "x", index));
  const collection = store.collection("t");
  assert.ok(store.revision - collection.floor <= 10);
  assert.equal(collection.since(collection.floor).length, store.revision - collection.floor);
});

test("store: listeners see commits in order, with the state before", () => {
  const store = new Store({ historyLimit: 5 });
  const seen: string[] = [];
  store
    .collection("t")
    .subscribe((event) => seen.push(`${event.type} ${event.previous?.revision ?? 0}->${event.revision}`));
  store.write("t", object("n", "x"));
  store.write("t", object("n", "x", 1));
  store.remove("t", "n/x");
  assert.deepEqual(seen, ["ADDED 0->2", "MODIFIED 2->3", "DELETED 3->4"]);
});

test("store: pages taken while others write are the state of the first page's revision", () => {
  const step = fc.record({ name: fc.integer({ min: 0, max: 15 }), remove: fc.boolean() });
  fc.assert(
    fc.property(
      fc.array(step, { maxLength: 30 }),
      fc.array(step, { maxLength: 30 }),
      fc.integer({ min: 1, max: 5 }),
      (before, during, limit) => {
        const store = new Store({ historyLimit: 1000 });
        const act = ({ name, remove }: { name: number; remove: boolean }): void => {
          if (remove) store.remove("t", `n/${name}`);
          else store.write("t", object("n", String(name), store.revision));
        };
        for (const item of before) act(item);
        const { revision } = store;
        const want = store
          .collection("t")
          .list()
          .map((entry) => [entry.key, entry.revision]);
        const got: unknown[] = [];
        const changes = [...during];
        for (let after = "", more = true; more; ) {
          const page = store.collection("t").page({ prefix: "", after, limit, revision });
          got.push(...page.entries.map((entry) => [entry.key, entry.revision]));
          more = page.next !== undefined;
          after = page.next ?? "";
          for (const item of changes.splice(0, 3)) act(item);
        }
        assert.deepEqual(got, want);
      },
    ),
  );
});

test("store: changes up to a revision are forgotten, and a collection without such changes keeps its floor", () => {
  const store = new Store({ historyLimit: 100 });
  store.write("idle", object("n", "x"));
  const { floor } = store.collection("idle");
  store.collection("later");
  for (let index = 0; index < 10; index += 1) store.write("t", object("n", "x", index));
  const kept = store.revision - 3;
  store.forget(kept);
  const collection = store.collection("t");
  assert.deepEqual([collection.floor, collection.since(collection.floor).length], [kept, 3]);
  store.forget(kept);
  assert.deepEqual([collection.floor, collection.since(collection.floor).length], [kept, 3]);
  store.write("later", object("n", "x"));
  const before = store.collection("later").floor;
  store.forget(store.revision - 1);
  assert.equal(store.collection("later").floor, before);
  assert.ok(store.collection("idle").floor > floor, "its only change is forgotten");
});
