/** Each of these folders can be removed whole, with one line that passes it in: nothing else imports it. */
import assert from "node:assert/strict";
import { globSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";

/** The only file outside of each folder that imports it. The feature's own face hands `cdi` and `workers` to the program. */
const IMPORTED_BY: Readonly<Record<string, string>> = {
  cdi: "index.ts",
  "plain-http": "engine/engine.ts",
  transparent: "engine/engine.ts",
  workers: "index.ts",
};

/** `file: line` of each import of a folder from outside of it, tests included. */
function importsOf(folder: string): string[] {
  const files = globSync("**/*.ts", { cwd: import.meta.dirname }).filter((file) => !file.startsWith(`${folder}/`));
  return files.flatMap((file) => {
    const text = readFileSync(join(import.meta.dirname, file), "utf8");
    return Array.from(text.matchAll(new RegExp(`from "\\.{1,2}/${folder}/[^"]*"`, "g")), () => file);
  });
}

test("uplink-proxy: CDI, plain HTTP, transparent mode and threads are each imported in one line", () => {
  for (const [folder, file] of Object.entries(IMPORTED_BY)) assert.deepEqual(importsOf(folder), [file], folder);
});
