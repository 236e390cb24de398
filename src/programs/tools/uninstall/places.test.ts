import assert from "node:assert/strict";
import { mkdirSync, mkdtempSync, rmSync, symlinkSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import { inRoot } from "./places.ts";

test("inRoot: paths are in the folder of the node's files", () => {
  assert.equal(inRoot({ root: "" }, "/run/coild.sock"), "/run/coild.sock");
  assert.equal(inRoot({ root: "/host" }, "/run/coild.sock"), "/host/run/coild.sock");
});

test("inRoot: links of folders lead where the node's lead, and never out of the root; the file's own link is not followed", (t) => {
  const root = mkdtempSync(join(tmpdir(), "root-"));
  t.after(() => rmSync(root, { recursive: true }));
  mkdirSync(join(root, "opt/cni"), { recursive: true });
  symlinkSync("/usr/libexec/cni", join(root, "opt/cni/bin"));
  symlinkSync("../../..", join(root, "opt/up"));
  symlinkSync("/round", join(root, "round"));
  symlinkSync("/elsewhere", join(root, "opt/link"));
  for (const [path, expected] of [
    ["/opt/cni/bin/coil", "usr/libexec/cni/coil"],
    ["/opt/up/x", "x"],
    ["/opt/link", "opt/link"],
    ["/round/x", "round/x"],
  ] as const)
    assert.equal(inRoot({ root }, path), join(root, expected), path);
});
