import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "fast-check";
import { terminalUnit as unit } from "#test/characters";
import { printable, printableStack, withoutEnd } from "./index.ts";

test("printable: any text becomes part of one line that draws nothing, is read back, and stays as it is afterwards", () => {
  fc.assert(
    fc.property(fc.string({ unit }), (text) => {
      const shown = printable(text);
      assert.doesNotMatch(shown, /[\p{Cc}\p{Cf}\p{Zl}\p{Zp}\p{Cs}]/u);
      assert.equal(Buffer.from(shown).toString(), shown);
      assert.equal(printable(shown), shown);
      if (!/[\\"]/.test(text)) assert.equal(JSON.parse(`"${shown}"`), text);
    }),
    { numRuns: 1000 },
  );
  assert.equal(
    printable("a\nb\r\t\x1b[31m\x9b\u202ec\ud83d d\u{e0041}"),
    "a\\nb\\r\\t\\u001b[31m\\u009b\\u202ec\\ud83d d\\udb40\\udc41",
  );
  for (const text of ["", "pod default/web-1: 10.1.0.1", "C:\\n", "Größe 字 😀", '{"a": "b"}'])
    assert.equal(printable(text), text);
});

test("printableStack: a message of several lines is one line; the frames follow", () => {
  const lines = printableStack(new TypeError("no such\n    at forged (file.ts:1:1)\x1b[2J")).split("\n");
  assert.equal(lines[0], "TypeError: no such\\n    at forged (file.ts:1:1)\\u001b[2J");
  assert.match(lines[1] ?? "", /^ {4}at .*text\.test\.ts/);
  assert.equal(printableStack("a\nb"), "a\\nb");
  const bare = new Error("");
  assert.match(printableStack(bare), /^Error\n {4}at /);
});

test("withoutEnd: the character is cut at the end alone, as often as it stands there", () => {
  for (const [text, rest] of [
    ["", ""],
    ["/", ""],
    ["a//", "a"],
    ["//a/b", "//a/b"],
    ["a/ /", "a/ "],
  ] as const)
    assert.equal(withoutEnd(text, "/"), rest);
});
