import assert from "node:assert/strict";
import { test } from "node:test";
import { claimsOf } from "#test/what-shows-it";

const numbered = (letter: string, ...numbers: readonly number[]): string[] => numbers.map((one) => `${letter}${one}`);
const upTo = (last: number): number[] => Array.from({ length: last }, (_, at) => at + 1);

test("docs/design/pod-network.md: every claim names a file that is there and a test that is in it; those of egress are on its own page", () => {
  const { sections, missing } = claimsOf("docs/design/pod-network.md");
  assert.deepEqual(missing, []);
  const ofEgress = new Set([11, 12]);
  const demands = upTo(16).filter((one) => !ofEgress.has(one));
  assert.deepEqual(
    sections,
    new Set([...numbered("U", ...upTo(15)), ...numbered("E", ...upTo(10)), ...numbered("D", ...demands)]),
  );
});
