import assert from "node:assert/strict";
import { existsSync, mkdirSync, mkdtempSync, renameSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, test } from "node:test";
import { FakeClock } from "#base/clock";
import { Health } from "#base/health";
import { createLogger } from "#base/log";
import { acquireFileLock, tryFileLock } from "./index.ts";

const root = mkdtempSync(join(tmpdir(), "isthmus-lock-"));
after(() => rmSync(root, { recursive: true }));

/** A lock that is kept, in a folder of its own. */
async function bedOf(name: string) {
  const folder = join(root, name);
  mkdirSync(folder);
  const path = join(folder, "lock");
  const clock = new FakeClock();
  const lines: string[] = [];
  const log = createLogger({ name: "t", write: (line) => lines.push(JSON.parse(line).msg) });
  const health = new Health({ log, clock });
  const lock = await acquireFileLock(path);
  const stop = new AbortController();
  const part = health.part("lock", { needed: "always" });
  const kept = lock.keep({ health: part, log, clock }, { signal: stop.signal });
  return { folder, path, clock, lines, health, lock, kept, stop };
}

test("FileLock.keep: a file that is removed or replaced is locked again within a second, and no second process gets the lock", async () => {
  const { path, folder, clock, lines, lock, kept, stop } = await bedOf("removed");
  rmSync(path);
  await clock.advance(1000);
  assert.equal(tryFileLock(path), undefined);
  writeFileSync(join(folder, "other"), "");
  renameSync(join(folder, "other"), path);
  await clock.advance(1000);
  assert.equal(tryFileLock(path), undefined);
  await clock.advance(10_000);
  assert.deepEqual(lines, new Array(2).fill("locked again: the lock file was removed or replaced"));
  stop.abort();
  await kept;
  await lock[Symbol.asyncDispose]();
  using free = tryFileLock(path);
  assert.notEqual(free, undefined);
});

test("FileLock.keep: ends with an error when another process has locked the new file", async () => {
  const { path, clock, lock, kept } = await bedOf("taken");
  rmSync(path);
  using _other = tryFileLock(path);
  const rejected = assert.rejects(kept, {
    name: "FileLockError",
    code: "taken",
    message: /another process has locked/,
  });
  await clock.advance(1000);
  await rejected;
  await lock[Symbol.asyncDispose]();
});

test("FileLock.keep: not ready while the folder is gone; locked again when it is made again", async () => {
  const { folder, path, clock, health, lock, kept, stop } = await bedOf("folder");
  rmSync(folder, { recursive: true });
  await clock.advance(1000);
  assert.match(health.unready[0]?.reason ?? "", /lock/);
  mkdirSync(folder);
  await clock.advance(1000);
  assert.deepEqual([health.unready, existsSync(path), tryFileLock(path)], [[], true, undefined]);
  stop.abort();
  await kept;
  await lock[Symbol.asyncDispose]();
});

test("acquireFileLock: a process that waits for a file that is removed locks the new one", async () => {
  const path = join(root, "waited");
  const first = await acquireFileLock(path);
  const waited = Promise.withResolvers<void>();
  const second = acquireFileLock(path, { onWait: waited.resolve });
  await waited.promise;
  rmSync(path);
  await using _second = await second;
  assert.equal(tryFileLock(path), undefined);
  await first[Symbol.asyncDispose]();
});
