import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { globSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";

const root = join(import.meta.dirname, "../../..");

/** Returns whether `gc` is there after its flag was set, in a process with this switch. */
function collects(value: string | undefined): boolean {
  const script = `import { setV8Flag } from "./src/base/v8-flags/index.ts";
import { runInNewContext } from "node:vm";
setV8Flag("--expose-gc");
console.log(runInNewContext("typeof gc"));`;
  const { ISTHMUS_V8_FLAGS, NODE_TEST_CONTEXT, ...rest } = process.env;
  const env = { ...rest, ...(value === undefined ? {} : { ISTHMUS_V8_FLAGS: value }) };
  return (
    execFileSync(process.execPath, ["--input-type=module", "--eval", script], {
      cwd: root,
      env,
      encoding: "utf8",
    }).trim() === "function"
  );
}

test("setV8Flag: sets a flag, and none with ISTHMUS_V8_FLAGS=off", () => {
  assert.deepEqual([collects(undefined), collects("on"), collects("off")], [true, true, false]);
});

test("setV8Flag: no other module of the programs sets flags of V8, so the switch is one for all", () => {
  const setters = globSync("src/**/*.ts", { cwd: root })
    .filter((file) => !file.endsWith(".test.ts"))
    .filter((file) => readFileSync(join(root, file), "utf8").includes("setFlagsFromString"));
  assert.deepEqual(setters, ["src/base/v8-flags/v8-flags.ts"]);
});
