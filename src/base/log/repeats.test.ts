import assert from "node:assert/strict";
import { test } from "node:test";
import { MAX_REMEMBERED, Repeats } from "./repeats.ts";

test("Repeats: a repeated text is not new; a changed text, and one after forget, is", () => {
  const repeats = new Repeats();
  const said = [
    ["a", "x"],
    ["a", "x"],
    ["b", "x"],
    ["a", "y"],
    ["a", "x"],
  ].map(([key = "", text = ""]) => repeats.isNew(key, text));
  assert.deepEqual(said, [true, false, true, true, true]);
  assert.equal(repeats.forget("a"), true);
  assert.equal(repeats.forget("a"), false);
  assert.equal(repeats.isNew("a", "x"), true);
  repeats.keepOnly(new Set(["a"]));
  assert.deepEqual([repeats.isNew("a", "x"), repeats.isNew("b", "x")], [false, true]);
});

test("Repeats: its memory is bounded, and the oldest key is forgotten first", () => {
  const repeats = new Repeats();
  for (let key = 0; key <= MAX_REMEMBERED; key += 1) repeats.isNew(String(key), "");
  assert.equal(repeats.isNew(String(MAX_REMEMBERED), ""), false);
  assert.equal(repeats.isNew("0", ""), true);
});
