import assert from "node:assert/strict";
import { test } from "node:test";
import { declares, pathsOf, walkStepsOf } from "./code-references.ts";

const PAGE = `# Page

The loops are in \`base/reconcile\`; run \`node tools/check-layers.ts --write\`. Not paths: \`/run/coild.sock\`, \`deploy/NAME.yaml\`, \`lab.isthmus.dev/lab\`.

\`\`\`text
\`src/none.ts\`
\`\`\`

## Two walks through the code

**How a call ends.** From here to there:

1. \`src/features/tunnel/front.ts\` or \`grpc-frontend.ts\`: the client gets the error (\`serve\`, \`#end\`).
2. A line of prose.
3. \`src/programs/<program>.ts\`: a copy of \`coil-router.ts\`; see \`controller/run.test.ts\`.

**Another.**

1. \`src/base/ip/cidr.ts\`: parses (as always) a prefix.
2. \`node tools/gen-docs.ts\`: the page.

## After

1. \`src/base/log/log.ts\`: no step (\`log\`).
`;

test("pathsOf: whole paths, modules, and files beside the first path of their list item; none of code blocks and placeholders", () => {
  assert.deepEqual(pathsOf(PAGE, { beside: true }), [
    "src/base/reconcile",
    "tools/check-layers.ts",
    "src/features/tunnel/front.ts",
    "src/features/tunnel/grpc-frontend.ts",
    "src/programs/coil-router.ts",
    "src/programs/controller/run.test.ts",
    "src/base/ip/cidr.ts",
    "tools/gen-docs.ts",
    "src/base/log/log.ts",
  ]);
  assert.deepEqual(pathsOf("`src/base/ip/cidr.ts` and `ip.ts`", { beside: false }), ["src/base/ip/cidr.ts"]);
});

test("walkStepsOf: numbered lines of the section of walks, with the names in the parentheses at their end", () => {
  assert.deepEqual(walkStepsOf(PAGE), [
    { walk: "How a call ends.", file: "src/features/tunnel/front.ts", names: ["serve", "#end"] },
    { walk: "How a call ends.", file: undefined, names: [] },
    { walk: "How a call ends.", file: "src/programs/<program>.ts", names: [] },
    { walk: "Another.", file: "src/base/ip/cidr.ts", names: [] },
  ]);
});

test("declares: functions, classes, constants and methods, and no calls", () => {
  const code = [
    "export async function serve(a: (b: string) => void): Promise<void> {",
    "  drain(a);",
    "  if (finish()) return;",
    "}",
    "export class Relay {",
    "  async #sync<T>(",
    "    one: T,",
    "  ): Promise<void> {",
    "    remove(",
    "      one,",
    "    );",
    "  }",
    "}",
    "const ROWS = 3;",
  ].join("\n");
  const names = ["serve", "Relay", "#sync", "ROWS", "drain", "finish", "remove", "sync", "Serve"];
  assert.deepEqual(
    names.filter((name) => declares(code, name)),
    ["serve", "Relay", "#sync", "ROWS"],
  );
});
