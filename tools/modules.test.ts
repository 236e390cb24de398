import assert from "node:assert/strict";
import { test } from "node:test";
import { importsIn, moduleOf, targetOf } from "./modules.ts";

test("moduleOf: folders of layers, folders of wings of programs, and files beside these", () => {
  const paths = [
    "src/base/ip/cidr.ts",
    "src/programs/tools/lab/program.ts",
    "src/programs/daemons/coild/forgotten/judge.ts",
    "src/programs/start/early.ts",
    "src/programs/programs.ts",
  ];
  assert.deepEqual(paths.map(moduleOf), [
    "base/ip",
    "programs/tools/lab",
    "programs/daemons/coild",
    "programs/start",
    "programs/programs",
  ]);
});

test("targetOf: paths, modules, and nothing for packages", () => {
  const of = (specifier: string): string | undefined => targetOf({ file: "src/base/ip/a.ts", specifier });
  assert.deepEqual(
    ["./b.ts", "../log/index.ts", "#kernel/nft", "#programs/daemons/coild/inspect", "node:fs", "yaml"].map(of),
    [
      "src/base/ip/b.ts",
      "src/base/log/index.ts",
      "kernel/nft",
      "src/programs/daemons/coild/inspect.ts",
      undefined,
      undefined,
    ],
  );
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
