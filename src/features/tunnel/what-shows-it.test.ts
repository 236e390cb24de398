import assert from "node:assert/strict";
import { existsSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";

const root = join(import.meta.dirname, "../../..");
const ROW = /^\| ([A-G]) \| (.+) \| `(.+)` \| (.+) \|$/gm;

test("docs/design/tunnel.md: every claim names a file that is there and a test that is in it", () => {
  const page = readFileSync(join(root, "docs/design/tunnel.md"), "utf8");
  const rows = [...page.matchAll(ROW)];
  assert.deepEqual(new Set(rows.map(([, section]) => section)), new Set("ABCDEFG"));
  const missing = rows.flatMap(([, , claim = "", file = "", name = ""]) => {
    const path = join(root, file);
    const isThere = existsSync(path) && readFileSync(path, "utf8").includes(name);
    return isThere ? [] : [`${claim}: no "${name}" in ${file}`];
  });
  assert.deepEqual(missing, []);
});
