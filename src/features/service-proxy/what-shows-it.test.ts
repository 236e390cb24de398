import assert from "node:assert/strict";
import { test } from "node:test";
import { claimsOf } from "#test/what-shows-it";

/** The rows of the specification's list of tests: so many of each kind (docs/spec/service-proxy.md#3.2). */
const ROWS = { H: 13, S: 26, R: 10 } as const;

test("docs/design/service-proxy.md: has every row of the specification, and each names a test that exists", () => {
  const { sections, missing } = claimsOf("docs/design/service-proxy.md");
  const expected = Object.entries(ROWS).flatMap(([kind, count]) =>
    Array.from({ length: count }, (_, at) => `${kind}${at + 1}`),
  );
  assert.deepEqual(sections, new Set(expected));
  assert.deepEqual(missing, []);
});
