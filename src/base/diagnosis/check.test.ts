import assert from "node:assert/strict";
import { test } from "node:test";
import { doctorText } from "./check.ts";

test("doctorText: texts of others cannot draw on the terminal, nor begin a line", () => {
  const foreign = "a\u001b]0;title\u0007b\u009b31m\nok       node  c\u2028d";
  const text = doctorText([{ state: "wrong", subject: foreign, text: foreign, remedy: foreign }]);
  assert.deepEqual(text.match(/[^\P{Cc}\n]|[\u2028\u2029]/gu), null);
  assert.equal(text.split("\n").length, 4);
});
