import assert from "node:assert/strict";
import { test } from "node:test";
import { splitCommandLines } from "./command-lines.ts";

const KNOWN = ["coild", "coil-router"];

test("splitCommandLines: each part has its own flags", () => {
  assert.deepEqual(splitCommandLines(["coild", "--v=1", "x", "--", "coil-router"], KNOWN), [
    { name: "coild", argv: ["--v=1", "x"] },
    { name: "coil-router", argv: [] },
  ]);
});

for (const [words, fault] of [
  [[], /no program is given.*coild, coil-router/],
  [["nope"], /"nope" is not a program of a node/],
  [["coild", "--", "coild"], /coild is given twice/],
  [["coild", "--", "--", "coil-router"], /command line 2 is empty/],
] as const) {
  test(`splitCommandLines: refuses "${words.join(" ")}"`, () => {
    assert.throws(() => splitCommandLines(words, KNOWN), { code: "invalid-flags", message: fault });
  });
}
