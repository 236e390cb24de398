import assert from "node:assert/strict";
import { test } from "node:test";
import { claimsOf } from "#test/what-shows-it";

test("docs/design/status-and-doctor.md: every claim names a file that is there and a test that is in it", () => {
  const { sections, missing } = claimsOf("docs/design/status-and-doctor.md");
  assert.deepEqual(missing, []);
  assert.deepEqual(sections, new Set(["A", "B"]));
});
