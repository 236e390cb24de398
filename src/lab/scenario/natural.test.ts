import assert from "node:assert/strict";
import { test } from "node:test";
import { naturally } from "./natural.ts";

test("naturally: numbers in names are compared as numbers, at any position", () => {
  const names = ["node10", "node2", "node1", "default-12", "default-9", "ns2/web-10", "ns2/web-9", "ns10/web-1"];
  assert.deepEqual(names.sort(naturally), [
    "default-9",
    "default-12",
    "node1",
    "node2",
    "node10",
    "ns2/web-9",
    "ns2/web-10",
    "ns10/web-1",
  ]);
});
