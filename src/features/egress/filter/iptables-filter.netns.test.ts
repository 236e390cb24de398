import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { mkdtempSync, rmSync, symlinkSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import { createAnonymousNetNs } from "#kernel/netns";
import { commandRunner } from "./iptables-filter.ts";

test("commandRunner: a command runs in another namespace with no other program there, as in the image; a missing one is named", async (t) => {
  const folder = mkdtempSync(join(tmpdir(), "isthmus-runner-"));
  const path = process.env["PATH"];
  t.after(() => {
    process.env["PATH"] = path;
    rmSync(folder, { recursive: true });
  });
  symlinkSync(execFileSync("which", ["readlink"], { encoding: "utf8" }).trim(), join(folder, "readlink"));
  process.env["PATH"] = folder;
  using netns = createAnonymousNetNs();
  const there = await commandRunner(netns)("readlink", ["/proc/self/ns/net"]);
  assert.equal(there.trim(), `net:[${netns.inode}]`);
  const here = await commandRunner()("readlink", ["/proc/self/ns/net"]);
  assert.notEqual(here, there);
  for (const run of [commandRunner(netns), commandRunner()])
    await assert.rejects(run("iptables", ["-S"]), { name: "IptablesError", code: "missing" });
  await assert.rejects(commandRunner(netns)("readlink", ["/proc/self/none"]), { code: "refused" });
});
