import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { existsSync, mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import { beforeRemoval } from "./deb.ts";

test("beforeRemoval: a removal ends and disables the units and takes compiled code away; an upgrade does neither", (t) => {
  const folder = mkdtempSync(join(tmpdir(), "prerm-"));
  t.after(() => rmSync(folder, { recursive: true }));
  const [log, cache, script] = [join(folder, "log"), join(folder, ".compile-cache"), join(folder, "prerm")];
  mkdirSync(cache);
  writeFileSync(join(folder, "systemctl"), `#!/bin/sh\necho "$@" >>${log}\n`, { mode: 0o755 });
  writeFileSync(script, beforeRemoval(folder, ["isthmus-a.service", "isthmus-b.service"]));
  const run = (word: string): void => {
    execFileSync("/bin/sh", [script, word], { env: { PATH: `${folder}:/usr/bin:/bin` } });
  };
  run("upgrade");
  assert.deepEqual([existsSync(log), existsSync(cache)], [false, true]);
  run("remove");
  assert.equal(existsSync(cache), false);
  assert.match(readFileSync(log, "utf8"), /^disable (--now )?isthmus-a\.service isthmus-b\.service\n$/);
});
