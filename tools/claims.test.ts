import assert from "node:assert/strict";
import { test } from "node:test";
import { claimsOf, sectionFaults } from "./claims.ts";

const files = new Map([["src/a.test.ts", 'test("a: a claim is shown", () => {});']]);
const faultsOf = (...rows: readonly string[]): readonly string[] =>
  claimsOf(["| section | claim | file | test |", "| --- | --- | --- | --- |", ...rows].join("\n"), (file) =>
    files.get(file),
  ).faults;

test("claimsOf: a row whose file has the test is right, and its section counts", () => {
  const { sections, faults } = claimsOf("| U1 | one | `src/a.test.ts` | a claim is shown |", (file) => files.get(file));
  assert.deepEqual([sections, faults], [new Set(["U1"]), []]);
});

test("claimsOf: a test or a file that does not exist is named, and so is a row without a section", () => {
  assert.deepEqual(faultsOf("| U1 | one | `src/a.test.ts` | another claim |", "| U2 | two | `src/b.test.ts` | x |"), [
    'one: no "another claim" in src/a.test.ts',
    'two: no "x" in src/b.test.ts',
  ]);
  assert.deepEqual(faultsOf("| three | `src/a.test.ts` | a claim is shown |"), [
    "a row without the name of its section: | three | `src/a.test.ts` | a claim is shown |",
  ]);
  assert.deepEqual(faultsOf("| kind | `ClusterRole` | what it is for |"), [], "a table of another kind");
});

test("sectionFaults: a section without a row, and a row of no section", () => {
  assert.deepEqual(sectionFaults(new Set(["A", "C"]), new Set(["A", "B"])), [
    "no row of section B",
    "C is no section of this page; add it in tools/check-claims.ts",
  ]);
});
