import assert from "node:assert/strict";
import { test } from "node:test";
import { importsIn, moduleOf, targetOf } from "./modules.ts";

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

test("importsIn: static and dynamic imports and re-exports; none of comments", () => {
  const code = [
    'import { a } from "#base/a";',
    'export * from "./b.ts";',
    'const c = await import("./c.ts");',
    ' * import { d } from "./d.ts";',
    '// import "./e.ts";',
  ];
  assert.deepEqual(
    importsIn("src/base/ip/a.ts", code.join("\n")).map(({ specifier }) => specifier),
    ["#base/a", "./b.ts", "./c.ts"],
  );
});
