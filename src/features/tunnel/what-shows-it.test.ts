import assert from "node:assert/strict";
import { test } from "node:test";
import { claimsOf } from "#test/what-shows-it";

test("docs/design/tunnel.md: every claim names a file that is there and a test that is in it", () => {
  const { sections, missing } = claimsOf("docs/design/tunnel.md");
  assert.deepEqual(sections, new Set("ABCDEFGH"));
  assert.deepEqual(missing, []);
});
