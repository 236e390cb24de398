import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import {
  mkdtempSync,
  readdirSync,
  readFileSync,
  renameSync,
  rmSync,
  statSync,
  symlinkSync,
  writeFileSync,
} from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { type TestContext, test } from "node:test";
import { FakeClock } from "#base/clock";
import { FileError, LOOK_MS, lookAt, readBounded, replaceFile, watchFiles } from "./index.ts";
import { MAX_FILE_BYTES } from "./read.ts";

function folderOf(t: TestContext): string {
  const folder = mkdtempSync(join(tmpdir(), "isthmus-file-"));
  t.after(() => rmSync(folder, { recursive: true }));
  return folder;
}

test("readBounded: a file up to the bound is read whole, a longer one is refused", (t) => {
  const path = join(folderOf(t), "file");
  for (const length of [0, 1, MAX_FILE_BYTES]) {
    writeFileSync(path, "x".repeat(length));
    assert.equal(readBounded(path).length, length);
  }
  writeFileSync(path, "x".repeat(MAX_FILE_BYTES + 1));
  assert.throws(
    () => readBounded(path),
    new FileError("unreadable", `cannot read ${path}: it has more than 1048576 bytes`),
  );
});

test("readBounded: an absent file, a folder, and a pipe without a writer are refused at once", (t) => {
  const folder = folderOf(t);
  const pipe = join(folder, "pipe");
  execFileSync("mkfifo", [pipe]);
  for (const [path, why] of [
    [join(folder, "absent"), /cannot read .*absent: ENOENT/],
    [folder, /it is not a file/],
    [pipe, /it is not a file/],
  ] as const) {
    assert.throws(
      () => readBounded(path),
      (error) => error instanceof FileError && why.test(error.message),
    );
  }
});

test("watchFiles: reports each change once: written, replaced, reached by another link, removed, back again", async (t) => {
  const folder = folderOf(t);
  const [path, link] = [join(folder, "file"), join(folder, "link")];
  writeFileSync(path, "1");
  symlinkSync("file", link);
  const clock = new FakeClock();
  const stop = new AbortController();
  const told = t.mock.fn();
  const watching = watchFiles([link], told, { signal: stop.signal, clock });
  const changes: readonly (() => void)[] = [
    () => writeFileSync(path, "22"),
    () => {
      writeFileSync(join(folder, "new"), "333");
      renameSync(join(folder, "new"), path);
    },
    () => {
      writeFileSync(join(folder, "other"), "4444");
      symlinkSync("other", join(folder, "turned"));
      renameSync(join(folder, "turned"), link);
    },
    () => rmSync(join(folder, "other")),
    () => writeFileSync(join(folder, "other"), "55555"),
  ];
  for (const [at, change] of changes.entries()) {
    await clock.advance(LOOK_MS);
    change();
    await clock.advance(4 * LOOK_MS);
    assert.equal(told.mock.callCount(), at + 1);
  }
  stop.abort();
  await watching;
});

test("watchFiles: a change since the files were read is reported at once", async (t) => {
  const path = join(folderOf(t), "file");
  writeFileSync(path, "1");
  const since = lookAt([path]);
  writeFileSync(path, "22");
  const stop = new AbortController();
  const told = t.mock.fn();
  const watching = watchFiles([path], told, { signal: stop.signal, clock: new FakeClock(), since });
  assert.equal(told.mock.callCount(), 1);
  stop.abort();
  await watching;
});

test("replaceFile: content, copies and modes; the folder is made if requested; no other file is left", (t) => {
  const folder = folderOf(t);
  const path = join(folder, "deep/er/file");
  replaceFile(path, "one", { mode: 0o600, folderMode: 0o700 });
  replaceFile(path, "two", { mode: 0o644, sync: true });
  const copy = join(folder, "copy");
  replaceFile(copy, { copyOf: path }, { mode: 0o755 });
  assert.deepEqual([readFileSync(path, "utf8"), readFileSync(copy, "utf8")], ["two", "two"]);
  assert.deepEqual([statSync(path).mode & 0o777, statSync(copy).mode & 0o777], [0o644, 0o755]);
  assert.equal(statSync(join(folder, "deep")).mode & 0o777, 0o700);
  assert.deepEqual(readdirSync(folder).sort(), ["copy", "deep"]);
  assert.deepEqual(readdirSync(join(folder, "deep/er")), ["file"]);
});

test("replaceFile: a failure leaves the target as it was, names it, and leaves no file behind", (t) => {
  const folder = folderOf(t);
  const path = join(folder, "file");
  writeFileSync(path, "old");
  assert.throws(
    () => replaceFile(path, { copyOf: join(folder, "absent") }, { mode: 0o644 }),
    (error) =>
      error instanceof FileError && error.code === "unwritable" && error.message.startsWith(`cannot write ${path}: `),
  );
  assert.equal(readFileSync(path, "utf8"), "old");
  assert.throws(() => replaceFile(join(folder, "absent/file"), "", { mode: 0o644 }), FileError);
  assert.deepEqual(readdirSync(folder), ["file"]);
});

test("replaceFile: the file that a killed writer with this process id left is no obstacle", (t) => {
  const folder = folderOf(t);
  writeFileSync(join(folder, `.file.${process.pid}.tmp`), "half");
  replaceFile(join(folder, "file"), "whole", { mode: 0o644 });
  assert.deepEqual(readdirSync(folder), ["file"]);
});

test("replaceFile: in a folder that was deleted and is still in use it fails at once, and does not try for ever", (t) => {
  const folder = mkdtempSync(join(tmpdir(), "isthmus-file-"));
  t.after(() => rmSync(folder, { recursive: true, force: true }));
  const program = `
    const { rmdirSync } = require("node:fs");
    process.chdir(${JSON.stringify(folder)});
    rmdirSync(${JSON.stringify(folder)});
    const options = { mode: 0o600, folderMode: 0o700 };
    import(${JSON.stringify(join(import.meta.dirname, "index.ts"))}).then(({ replaceFile }) => {
      try {
        replaceFile("/proc/self/cwd/parts/file", "text", options);
      } catch (error) {
        console.log(error.code, error.message);
      }
    });`;
  const said = execFileSync(process.execPath, ["-e", program], { encoding: "utf8", timeout: 20_000 });
  assert.match(said, /^unwritable cannot write \/proc\/self\/cwd\/parts\/file: ENOENT/);
});

test("replaceFile: makes the folders that are absent with their mode; a file in the place of one is refused", (t) => {
  const folder = folderOf(t);
  replaceFile(join(folder, "a/b/file"), "text", { mode: 0o600, folderMode: 0o700 });
  assert.equal(statSync(join(folder, "a/b")).mode & 0o777, 0o700);
  replaceFile(join(folder, "a/b/file"), "again", { mode: 0o600, folderMode: 0o755 });
  assert.deepEqual(
    [readFileSync(join(folder, "a/b/file"), "utf8"), statSync(join(folder, "a/b")).mode & 0o777],
    ["again", 0o700],
  );
  assert.throws(
    () => replaceFile(join(folder, "a/b/file/c"), "text", { mode: 0o600, folderMode: 0o700 }),
    (error) => error instanceof FileError && error.code === "unwritable",
  );
});
