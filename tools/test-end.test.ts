import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";

test("test-end: a file whose test leaves a listener fails, and the message names it; one that leaves nothing ends at once", (t) => {
  const folder = mkdtempSync(join(tmpdir(), "isthmus-test-end-"));
  t.after(() => rmSync(folder, { recursive: true }));
  const run = (body: string): { readonly status: number | null; readonly stderr: string } => {
    const file = join(folder, "file.mjs");
    writeFileSync(
      file,
      `import { test } from "node:test"; import { createServer } from "node:net"; test("one", ${body});`,
    );
    const env = { ...process.env, ISTHMUS_TEST_END_MS: "300" };
    // A file that runs in a test runner's process would report to that runner.
    Reflect.deleteProperty(env, "NODE_TEST_CONTEXT");
    const argv = [`--import=${join(import.meta.dirname, "test-end.ts")}`, file];
    return spawnSync(process.execPath, argv, { env, encoding: "utf8", timeout: 30_000 });
  };
  const leaks = run("(t, done) => createServer().listen(0, '127.0.0.1', done)");
  assert.equal(leaks.status, 1);
  assert.match(leaks.stderr, /the process goes on 0\.3 s after its tests; active: .*TCPServerWrap/);
  const clean = run("() => undefined");
  assert.deepEqual([clean.status, clean.stderr], [0, ""]);
});
