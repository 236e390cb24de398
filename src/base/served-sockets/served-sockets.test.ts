import assert from "node:assert/strict";
import { chownSync, mkdirSync, mkdtempSync, readdirSync, rmSync, statSync, symlinkSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import fc from "fast-check";
import { FileError } from "#base/file";
import { isServed, markServed, servedSockets } from "./index.ts";

test("markServed: an executable knows the sockets of its own daemon alone, as long as their folders in /run are there", (t) => {
  const root = mkdtempSync(join(tmpdir(), "isthmus-served-sockets-"));
  t.after(() => rmSync(root, { recursive: true }));
  const folder = join(root, "marks");
  const [coild, agent] = [
    { kind: "coild", folder },
    { kind: "nic-agent", folder },
  ] as const;
  const other = join(root, "other");
  mkdirSync(other);
  const [one, two] = [join(root, "one.sock"), join(other, "two.sock")];
  assert.deepEqual([isServed(one, coild), servedSockets(coild)], [false, []]);
  markServed(one, coild);
  markServed(two, coild);
  assert.deepEqual([isServed(one, coild), isServed(one, agent)], [true, false]);
  assert.deepEqual([servedSockets(coild), servedSockets(agent)], [[one, two], []]);
  assert.equal(statSync(folder).mode & 0o777, 0o755);
  rmSync(other, { recursive: true });
  markServed(one, agent);
  // Of a folder that a daemon in a container may not see.
  assert.deepEqual(servedSockets(coild), [one, two]);
  assert.throws(() => markServed(`/${"x".repeat(200)}`, coild), FileError);
  assert.equal(isServed(`/${"x".repeat(200)}`, coild), false);
  if (process.getuid?.() !== 0) return;
  const inRun = mkdtempSync("/run/isthmus-served-sockets-");
  const three = join(inRun, "three.sock");
  markServed(three, coild);
  assert.equal(isServed(three, coild), true);
  rmSync(inRun, { recursive: true });
  markServed(one, agent);
  assert.deepEqual([servedSockets(coild), isServed(three, coild)], [[one, two], false]);
  // Neither what another user has written nor what leads elsewhere is a mark.
  const [mark = ""] = readdirSync(folder).filter((name) => name.startsWith("coild-"));
  chownSync(join(folder, mark), 1000, 1000);
  assert.equal([one, two].filter((path) => isServed(path, coild)).length, 1);
  rmSync(join(folder, mark));
  symlinkSync("/etc/passwd", join(folder, mark));
  assert.equal([one, two].filter((path) => isServed(path, coild)).length, 1);
});

test("isServed: of any text no other error escapes, and nothing outside of the folder is looked at", () => {
  fc.assert(
    fc.property(fc.string({ unit: "binary" }), (socket) => {
      assert.equal(isServed(socket, { kind: "coild", folder: "/nowhere" }), false);
    }),
  );
});
