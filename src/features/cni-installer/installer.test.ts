import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "fast-check";
import { isOfSuite } from "./installer.ts";

test("isOfSuite: a list that names one of the suite's plugins, at any place; nothing else", () => {
  const list = (...types: readonly string[]): string =>
    JSON.stringify({ name: "n", plugins: types.map((type) => ({ type })) });
  assert.deepEqual([list("coil"), list("bridge", "vpc-alcor")].map(isOfSuite), [true, true]);
  assert.deepEqual([list("bridge"), list("coil-standalone"), list(), "", "{", '"coil"'].map(isOfSuite), [
    false,
    false,
    false,
    false,
    false,
    false,
  ]);
});

test("isOfSuite: answers for any file of others", () => {
  fc.assert(fc.property(fc.oneof(fc.string(), fc.json()), (text) => typeof isOfSuite(text) === "boolean"));
  const plugins = fc.array(fc.oneof(fc.record({ type: fc.jsonValue() }), fc.jsonValue()));
  fc.assert(
    fc.property(fc.record({ name: fc.jsonValue(), plugins: fc.oneof(plugins, fc.jsonValue()) }), (list) => {
      assert.equal(typeof isOfSuite(JSON.stringify(list)), "boolean");
    }),
  );
});
