import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "fast-check";
import { boundedWork } from "#test/bounded-work";
import { parseQuantity } from "./quantity.ts";

test("parseQuantity: decimal, binary and exponent suffixes, and plain numbers", () => {
  const cases: readonly (readonly [unknown, number])[] = [
    ["100m", 0.1],
    [".5", 0.5],
    ["2.", 2],
    ["-1k", -1000],
    ["200Mi", 209_715_200],
    ["1e3", 1000],
    ["1E3", 1000],
    ["1E", 1e18],
    [0.1, 0.1],
  ];
  for (const [text, number] of cases) assert.equal(parseQuantity(text), number, String(text));
  for (const text of ["", "m", "1 m", "1mm", "0x1", null, {}, "1toString"])
    assert.ok(Number.isNaN(parseQuantity(text)), String(text));
});

test("parseQuantity: any value gives a number or NaN, and any number is read back", () => {
  fc.assert(fc.property(fc.anything(), (value) => typeof parseQuantity(value) === "number"));
  fc.assert(fc.property(fc.string(), (text) => typeof parseQuantity(text) === "number"));
  fc.assert(fc.property(fc.integer(), (number) => parseQuantity(`${number}`) === number));
});

test("parseQuantity: a text that is none, or too long, is refused in one pass", () => {
  for (const text of [
    `${"0".repeat(65_536)}\n`,
    `${"0".repeat(4000)}\n`,
    `${"0".repeat(63)}\n`,
    `.${"0".repeat(1_000_000)}x\n`,
  ])
    assert.ok(Number.isNaN(boundedWork(() => parseQuantity(text))));
  assert.equal(parseQuantity(`${"0".repeat(63)}1`), 1);
  assert.ok(Number.isNaN(parseQuantity(`${"0".repeat(64)}1`)));
});
