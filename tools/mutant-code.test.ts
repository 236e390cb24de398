import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import { mutantsOf, mutated } from "./mutant-code.ts";

const changesOf = (code: string): readonly string[] => mutantsOf(code).map((mutant) => mutated(code, mutant));

test("mutantsOf: each operator is changed alone, and each negation goes", () => {
  assert.deepEqual(changesOf("if (a === 1 && !b) return true;"), [
    "if (a !== 1 && !b) return true;",
    "if (a === 1 || !b) return true;",
    "if (a === 1 && b) return true;",
    "if (a === 1 && !b) return false;",
  ]);
  assert.deepEqual(changesOf("x = a <= b + 1;"), ["x = a < b + 1;", "x = a <= b - 1;"]);
});

test("mutantsOf: types, arrows, texts, comments and expressions are left", () => {
  const code = [
    "/** a && b */ // c < d",
    "const f = (one: Map<string, number>): Set<number> => one;",
    'const text = "a === b" + 1;',
    "const expression = text.match(/a && b/);",
    "const template = `a || b`;",
  ].join("\n");
  assert.deepEqual(
    mutantsOf(code).map(({ line, from }) => [line, from]),
    [[3, " + "]],
  );
});

test("mutantsOf: lines and columns are those of the operator", () => {
  const [{ line, column } = assert.fail()] = mutantsOf("one;\nif (a < b) two;");
  assert.deepEqual([line, column], [2, 7]);
});

test("mutated: code that is not what the change was made for is refused", () => {
  assert.throws(() => mutated("a && b", { at: 1, from: " || ", to: " && " }), /there is no " \|\| " at 1/);
});

test("mutants: a change that no test notices is named, and the exit code is 1; a file without tests is refused", (t) => {
  const root = join(import.meta.dirname, "..");
  // Below the root, because paths are from there.
  const folder = mkdtempSync(join(root, ".state/mutants-"));
  t.after(() => rmSync(folder, { recursive: true }));
  writeFileSync(join(folder, "sum.ts"), "export const sum = (a: number, b: number): number => (b < 0 ? a : a + b);\n");
  writeFileSync(
    join(folder, "sum.test.ts"),
    'import assert from "node:assert";\nimport { sum } from "./sum.ts";\nassert.equal(sum(1, 2), 3);\nassert.equal(sum(1, -2), 1);\n',
  );
  const run = (...argv: readonly string[]) =>
    spawnSync(process.execPath, [join(root, "tools/mutants.ts"), ...argv], { encoding: "utf8" });
  const { status, stdout } = run(join(folder, "sum.ts"), `--tests=${join(folder, "sum.test.ts")}`);
  assert.match(stdout, /2 changes, 1 survive 1 test files/);
  assert.match(stdout, /sum\.ts:1:\d+: < to <=: export const sum/);
  assert.equal(status, 1);
  assert.deepEqual([run().status, run(join(tmpdir(), "none.ts")).status], [2, 2]);
});
