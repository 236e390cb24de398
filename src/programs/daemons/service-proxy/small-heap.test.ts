import assert from "node:assert/strict";
import { test } from "node:test";
import { SmallHeap } from "./small-heap.ts";

test("SmallHeap: V8's flag is set once, after all families have been synced", () => {
  const flags: string[] = [];
  const heap = new SmallHeap([4, 6], (text) => flags.push(text));
  heap.synced(4);
  heap.synced(4);
  assert.deepEqual(flags, []);
  heap.synced(6);
  assert.deepEqual(flags, ["--optimize-for-size"]);
  for (const family of [4, 6] as const) heap.synced(family);
  assert.equal(flags.length, 1);
});
