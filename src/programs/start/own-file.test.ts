import assert from "node:assert/strict";
import { test } from "node:test";
import { ownFileOf } from "./own-file.ts";

test("ownFileOf: the link's name counts before the first word, and a program without a file is in the bundle", () => {
  const files = "coild coil-router";
  assert.equal(ownFileOf(files, "coild", "--version"), "./program-coild.cjs");
  assert.equal(ownFileOf(files, "isthmus", "coil-router"), "./program-coil-router.cjs");
  assert.equal(ownFileOf(files, "coild", "coil-router"), "./program-coild.cjs");
  for (const [name, word] of [
    ["isthmus", "lab"],
    ["isthmus", undefined],
    ["isthmus", ""],
    ["isthmus", "../coild"],
  ] as const)
    assert.equal(ownFileOf(files, name, word), undefined);
  assert.equal(ownFileOf(undefined, "coild", undefined), undefined, "sources that run as they are");
});
