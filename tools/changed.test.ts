import assert from "node:assert/strict";
import { test } from "node:test";
import { testsOfChanges } from "./changed.ts";

/** A tree in which each kind of dependency occurs once. */
const SOURCES = new Map<string, string>([
  ["src/base/ip/index.ts", 'export * from "./cidr.ts";'],
  ["src/base/ip/cidr.ts", '/** See `deploy/chart`. */ throw new Error("deploy/chart/values.yaml is wrong");'],
  ["src/base/ip/cidr.test.ts", 'import { cidr } from "./cidr.ts";'],
  ["src/base/ip/other.test.ts", 'import "#test/clock";'],
  ["src/features/b/index.ts", 'import { cidr } from "#base/ip";'],
  ["src/features/b/b.test.ts", 'import "./index.ts"; import "../../../tools/chart.ts";'],
  ["src/features/c/c.test.ts", 'readFileSync(join(root, "deploy/crds/a.yaml"));'],
  ["src/features/d/d.test.ts", 'globSync("deploy/chart/**/*.yaml"); spawn(join(root, "test/support/peer.ts"));'],
  ["test/support/clock.ts", "export const clock = 1;"],
  ["test/support/peer.ts", 'import "../../src/features/e/index.ts";'],
  ["test/cluster/a.cluster.test.ts", 'import { b } from "#features/b"; spawn("./run");'],
  ["tools/chart.ts", "export const chart = 1;"],
  ["tools/test.ts", 'import "./chart.ts";'],
  ["tools/end.test.ts", 'spawn(join(import.meta.dirname, "test.ts"), ["run"]);'],
]);

/** The test files that each changed file selects. */
const SELECTED: Readonly<Record<string, readonly string[]>> = {
  "src/base/ip/cidr.ts": [
    "src/base/ip/cidr.test.ts",
    "src/base/ip/other.test.ts",
    "src/features/b/b.test.ts",
    "test/cluster/a.cluster.test.ts",
  ],
  "src/base/ip/cidr.test.ts": ["src/base/ip/cidr.test.ts"],
  "src/base/ip/gone.ts": [
    "src/base/ip/cidr.test.ts",
    "src/base/ip/other.test.ts",
    "src/features/b/b.test.ts",
    "test/cluster/a.cluster.test.ts",
  ],
  "src/features/e/index.ts": ["src/features/d/d.test.ts"],
  "test/support/clock.ts": ["src/base/ip/other.test.ts"],
  "test/support/peer.ts": ["src/features/d/d.test.ts"],
  "tools/chart.ts": ["src/features/b/b.test.ts", "tools/end.test.ts"],
  "deploy/crds/a.yaml": ["src/features/c/c.test.ts"],
  "deploy/crds/b.yaml": [],
  "deploy/chart/templates/x.yaml": ["src/features/d/d.test.ts"],
  run: ["test/cluster/a.cluster.test.ts"],
  "README.md": [],
};

for (const [file, selected] of Object.entries(SELECTED))
  test(`testsOfChanges: ${file} selects ${selected.length} tests`, () => {
    assert.deepEqual([...testsOfChanges([file], SOURCES)].sort(), selected);
  });

for (const file of ["package-lock.json", "tools/runtime/package-lock.json", "tools/test.ts", "tools/compile-cache.mjs"])
  test(`testsOfChanges: ${file}, on which each test runs, selects all`, () => {
    assert.equal(testsOfChanges([file], SOURCES).size, 7);
  });

test("testsOfChanges: without a change there is no test", () => {
  assert.equal(testsOfChanges([], SOURCES).size, 0);
});
