import assert from "node:assert/strict";
import { test } from "node:test";
import { dependentsOf, moduleOf, targetOf } from "./modules.ts";

test("moduleOf: folders of layers, programs and their folders", () => {
  assert.deepEqual(["src/base/ip/cidr.ts", "src/programs/lab.ts", "src/programs/lab/front.ts"].map(moduleOf), [
    "base/ip",
    "programs/lab",
    "programs/lab",
  ]);
});

test("targetOf: paths, modules, and nothing for packages", () => {
  const of = (specifier: string): string | undefined => targetOf({ file: "src/base/ip/a.ts", specifier });
  assert.deepEqual(["./b.ts", "../log/index.ts", "#kernel/nft", "node:fs", "yaml"].map(of), [
    "src/base/ip/b.ts",
    "src/base/log/index.ts",
    "kernel/nft",
    undefined,
    undefined,
  ]);
});

test("dependentsOf: all that stand on a module, through others and round a cycle", () => {
  const imports = [
    { file: "src/kernel/a/index.ts", specifier: "#base/x" },
    { file: "src/features/b/index.ts", specifier: "#kernel/a" },
    { file: "src/kernel/a/y.ts", specifier: "#features/b" },
    { file: "src/features/c/index.ts", specifier: "#base/z" },
    { file: "src/programs/lab.ts", specifier: "#features/b" },
  ];
  assert.deepEqual([...dependentsOf(["base/x"], imports)].sort(), ["base/x", "features/b", "kernel/a", "programs/lab"]);
});
