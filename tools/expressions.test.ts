import assert from "node:assert/strict";
import { test } from "node:test";
import { expressionsOf, isBounded, madeExpressions } from "./expressions.ts";

const found = (code: string): string[] => expressionsOf(code).map(({ source, flags }) => `${source} ${flags}`.trim());

test("expressionsOf: literals are found where an operand can stand, not in strings, comments and quotients", () => {
  assert.deepEqual(found("const a = /x+/gi; return /[/\\]]\\//.test(b); f(/y/); [/z/, /w/u]; !/v/.test(c)"), [
    "x+ gi",
    "[/\\]]\\/",
    "y",
    "z",
    "w u",
    "v",
  ]);
  assert.deepEqual(found("a / b / c; (d) / e / f; g[0] / 2 / 3; const h = 1 / 2; x.in / 2 / y"), []);
  assert.deepEqual(found("'/a/' + \"/b/\" + `/c/` // = /d/\n/* = /e/ */ + '\\'= /f/'"), []);
  const template = ["`a $", "{b.replace(/c}/g, `d $", "{/e/.exec(f)} = /g/`)} = /h/` + (/i/)"].join("");
  assert.deepEqual(found(template), ["c} g", "e", "i"]);
  assert.deepEqual(found(["`$", "{{ a: { b: 1 } }.a / 2 / 3}` ; x = /j/"].join("")), ["j"]);
  assert.equal(expressionsOf("\n\nx = /k/")[0]?.line, 3);
});

test("madeExpressions: counts what is made of a text", () => {
  assert.equal(madeExpressions('new RegExp("a"); /* new RegExp(b) */ "new RegExp(c)"; isOf(RegExp)'), 1);
});

test("isBounded: the constant is in the file, small enough, and used", () => {
  const bound = { bound: "MAX_X", by: "slice(0, MAX_X)" };
  assert.equal(isBounded("const MAX_X = 4_096;\na.slice(0, MAX_X)", bound, 4096), true);
  assert.equal(isBounded("const MAX_X = 4097;\na.slice(0, MAX_X)", bound, 4096), false);
  assert.equal(isBounded("const MAX_X = 10;\na.slice(0, 10)", bound, 4096), false);
  assert.equal(isBounded("const MAX_X = other;\na.slice(0, MAX_X)", bound, 4096), false);
  assert.equal(isBounded("a.slice(0, MAX_X)", bound, 4096), false);
});
