import assert from "node:assert/strict";
import { test } from "node:test";
import { claimsOf } from "#test/what-shows-it";

test("docs/design/source-guard.md: every claim names a file that is there and a test that is in it", () => {
  const { sections, missing } = claimsOf("docs/design/source-guard.md");
  assert.deepEqual(missing, []);
  assert.deepEqual(sections, new Set(["G1", "G2", "G3", "G4", "G5", "G6", "G7"]));
});
