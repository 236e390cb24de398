import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "fast-check";
import { flatText, packed, packedSet, SharedTexts } from "./index.ts";

test("packed, packedSet, flatText: have the given content; empty ones are shared", () => {
  fc.assert(
    fc.property(fc.array(fc.string()), (texts) => {
      assert.deepEqual(packed(texts), texts);
      assert.deepEqual(packedSet(texts), new Set(texts));
      assert.equal(
        flatText(...texts),
        texts.reduce((all, text) => all + text, ""),
      );
    }),
  );
  assert.equal(packed([]), packed([]));
  assert.equal(packedSet([]), packedSet(new Set()));
});

test("SharedTexts: returns equal texts, however many there were", () => {
  const shared = new SharedTexts();
  for (let at = 0; at < 20_000; at += 1) assert.equal(shared.get(`node-${at}`), `node-${at}`);
});
