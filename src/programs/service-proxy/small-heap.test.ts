import assert from "node:assert/strict";
import { test } from "node:test";
import { SmallHeap } from "./small-heap.ts";

test("SmallHeap: collections give back what they can once all families have been synced, and that is said once", () => {
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
