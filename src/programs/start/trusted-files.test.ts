import assert from "node:assert/strict";
import { chmodSync, mkdirSync, mkdtempSync, rmSync, symlinkSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import { isTrusted, isTrustedFolder } from "./trusted-files.ts";

test("isTrusted: files of root and of this user that nobody else may write", () => {
  const own = process.geteuid?.() ?? 0;
  for (const uid of [0, own]) {
    for (const mode of [0o600, 0o644, 0o755]) assert.equal(isTrusted({ uid, mode }), true);
    for (const mode of [0o666, 0o620, 0o602, 0o777]) assert.equal(isTrusted({ uid, mode }), false);
  }
  assert.equal(isTrusted({ uid: own + 1, mode: 0o600 }), false);
});

test("isTrustedFolder: one file or folder in it that others may write, or a link, spoils it", (t) => {
  const folder = mkdtempSync(join(tmpdir(), "isthmus-trusted-"));
  t.after(() => rmSync(folder, { recursive: true }));
  const [inner, file] = [join(folder, "inner"), join(folder, "inner/file")];
  mkdirSync(inner, { mode: 0o755 });
  writeFileSync(file, "", { mode: 0o644 });
  assert.equal(isTrustedFolder(folder), true);
  for (const [path, good] of [
    [folder, 0o755],
    [inner, 0o755],
    [file, 0o644],
  ] as const) {
    for (const mode of [0o777, 0o775]) {
      chmodSync(path, mode);
      assert.equal(isTrustedFolder(folder), false, path);
    }
    chmodSync(path, good);
  }
  assert.equal(isTrustedFolder(folder), true);
  symlinkSync("file", join(inner, "link"));
  assert.equal(isTrustedFolder(folder), false);
  assert.equal(isTrustedFolder(join(folder, "absent")), false);
});
