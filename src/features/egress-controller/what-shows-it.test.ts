import assert from "node:assert/strict";
import { test } from "node:test";
import { claimsOf } from "#test/what-shows-it";

test("docs/design/egress.md: every claim names a file that is there and a test that is in it", () => {
  assert.deepEqual(claimsOf("docs/design/egress.md").missing, []);
});
