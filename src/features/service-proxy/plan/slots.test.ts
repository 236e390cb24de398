import assert from "node:assert/strict";
import { test } from "node:test";
import { Cidr } from "#base/ip";
import { withoutNested } from "./ranges.ts";
import { assignSlots } from "./slots.ts";

const ROWS: readonly (readonly [string, readonly (string | undefined)[], readonly string[], readonly string[]])[] = [
  ["nothing", [], [], []],
  ["a new front end gets the order of the plan", [], ["a", "b"], ["a", "b"]],
  ["an endpoint that stays keeps its slot", ["b", "a"], ["a", "b"], ["b", "a"]],
  ["a new endpoint gets the free slot", ["a", "b"], ["a", "c"], ["a", "c"]],
  ["an endpoint beyond the new count moves into a free slot", ["a", "b", "c"], ["b", "c"], ["c", "b"]],
  ["holes are filled", [undefined, "b"], ["a", "b"], ["a", "b"]],
  ["a duplicate counts once", ["a", "a"], ["a", "b"], ["a", "b"]],
];

for (const [name, observed, wanted, expected] of ROWS) {
  test(`assignSlots: ${name}`, () => assert.deepEqual(assignSlots(observed, wanted), expected));
}

test("withoutNested: ranges inside others and duplicates go, whatever the order", () => {
  const without = (...texts: readonly string[]): string[] =>
    withoutNested(texts.map((text) => Cidr.parse(text))).map(String);
  assert.deepEqual(without(), []);
  assert.deepEqual(without("10.1.0.0/16", "10.0.0.0/8", "10.0.0.0/8"), ["10.0.0.0/8"]);
  assert.deepEqual(without("10.0.0.0/16", "10.0.0.0/8", "192.0.2.0/24"), ["10.0.0.0/8", "192.0.2.0/24"]);
  assert.deepEqual(without("10.1.0.0/16", "10.0.0.0/16"), ["10.0.0.0/16", "10.1.0.0/16"]);
});
