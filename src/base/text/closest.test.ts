import assert from "node:assert/strict";
import { test } from "node:test";
import { closestWord } from "./closest.ts";

const KNOWN = ["lab", "node", "coild", "coil-router", "coil-egress", "nicctl"];

/** The suggestion for each mistyped word. */
const SUGGESTED: Readonly<Record<string, string | undefined>> = {
  coidl: "coild",
  coil: "coild",
  "coil-routre": "coil-router",
  coil_egres: "coil-egress",
  labb: "lab",
  la: "lab",
  ndoe: "node",
  coild: "coild",
  // Two edits of three characters are another word, and one edit of one character too.
  cat: undefined,
  b: undefined,
  "": undefined,
  "coil-controller": undefined,
};

for (const [word, closest] of Object.entries(SUGGESTED))
  test(`closestWord: "${word}" is ${closest === undefined ? "close to none" : `close to ${closest}`}`, () => {
    assert.equal(closestWord(word, KNOWN), closest);
  });

test("closestWord: fewer edits win over the order, and the order decides between equals", () => {
  assert.equal(closestWord("abcd", ["abXX", "abcX", "abcY"]), "abcX");
});
