import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { test } from "node:test";
import { fileURLToPath } from "node:url";

test("openers: one that fails, for want of descriptors or because of its namespace, leaves no descriptor open", () => {
  const script = fileURLToPath(new URL("./failing-openers.ts", import.meta.url));
  const command = 'mount -t tmpfs none /run && ulimit -n 100 && exec "$0" "$1"';
  const words = ["--mount", "sh", "-c", command, process.execPath, script];
  const { leaks, ends } = JSON.parse(execFileSync("unshare", words, { encoding: "utf8" }));
  assert.deepEqual(leaks, []);
  for (const name of ["openNft", "openNetNs", "NetlinkConnection", "openNftElements", "openStack"]) {
    assert.ok(ends.includes(`${name}: opened`) && ends.includes(`${name}: EMFILE`), `${name} of ${ends}`);
  }
});
