import assert from "node:assert/strict";
import { test } from "node:test";
import { headlessComments } from "./check-comments.ts";

test("headlessComments: doc comments that begin without a noun or a verb are named by line; others, and plain comments, are not", () => {
  const doc = (text: string): string => `/*${"*"} ${text} */`;
  const code = [
    doc("The settings. What follows is fine."),
    "const a = 1;",
    doc("What is kept."),
    "const b = 2;",
    doc("\n * Whether it is open, of several\n * lines and many more words than eight.\n"),
    `const c = 3; ${doc("Of d.")} const d = 4;`,
    "// Why this is so.",
    "/* How it is done. */",
    doc("Offers the value."),
    doc("Bytes."),
  ].join("\n");
  assert.deepEqual(headlessComments(code), [
    { line: 3, words: "What is kept." },
    { line: 5, words: "Whether it is open, of several lines and" },
    { line: 9, words: "Of d." },
  ]);
});
