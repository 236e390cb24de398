import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { existsSync, mkdirSync, mkdtempSync, rmSync, symlinkSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { type TestContext, test } from "node:test";
import type { NodeRemoval } from "#features/uninstall";
import { KernelError } from "#kernel/errors";
import { applyNode, removeTree } from "./apply-node.ts";
import type { NodeKernel } from "./read-node.ts";

/** Removals of files need no kernel. */
const target = {
  kernel: {} as NodeKernel,
  running: (): readonly string[] => [],
  uplinkSettings: () => [],
  removeForward: (): Promise<void> => assert.fail("no rule is removed"),
  removeClient: (): Promise<void> => assert.fail("no client is removed"),
  unplug: (containerId: string): Promise<void> =>
    Promise.reject(new KernelError("busy", `no answer for ${containerId}`)),
};

function files(t: TestContext, ...names: readonly string[]): readonly (NodeRemoval & { readonly path: string })[] {
  const folder = mkdtempSync(join(tmpdir(), "isthmus-uninstall-"));
  t.after(() => rmSync(folder, { recursive: true }));
  return names.map((name) => {
    const path = join(folder, name);
    writeFileSync(path, "");
    return { op: "remove-file", path, what: `delete ${name}`, why: "" } as const;
  });
}

test("applyNode: makes the removals in their order", async (t) => {
  const removals = files(t, "a", "b");
  const done: string[] = [];
  const failures = await applyNode(target, removals, ({ what }) => void done.push(what));
  assert.deepEqual([failures, done], [[], ["delete a", "delete b"]]);
  assert.deepEqual(
    removals.map(({ path }) => existsSync(path)),
    [false, false],
  );
});

test("applyNode: after a failure the estates stay, and everything else goes", async (t) => {
  const [a = assert.fail(), estate = assert.fail(), b = assert.fail()] = files(t, "a", "estate", "b");
  const gone = { op: "restore-file", path: "/nowhere/a", to: "/nowhere/b", what: "rename", why: "" } as const;
  const last = { ...estate, isLast: true } as NodeRemoval;
  const failures = await applyNode(target, [gone, a, last, b], () => undefined);
  assert.match(failures.join("\n"), /^rename: ENOENT.*\ndelete estate: it stays, as it says what is left$/);
  assert.deepEqual(
    [a, estate, b].map(({ path }) => existsSync(path)),
    [false, true, false],
  );
  assert.deepEqual(await applyNode(target, [last], () => undefined), []);
  assert.equal(existsSync(estate.path), false);
});

test("applyNode: a program that starts between two removals ends the work, and is named", async (t) => {
  const removals = files(t, "a", "b", "c");
  const done: string[] = [];
  const running = (): readonly string[] => (done.length < 1 ? [] : ["coild (process 12)"]);
  const failures = await applyNode({ ...target, running }, removals, ({ what }) => void done.push(what));
  assert.deepEqual(failures, ["coild (process 12) has started meanwhile: end it; nothing more was removed"]);
  assert.deepEqual(
    removals.map(({ path }) => existsSync(path)),
    [false, true, true],
  );
});

test("applyNode: NICs that cannot be removed keep their records, and everything else", async (t) => {
  const removals = files(t, "a");
  const unplug = { op: "unplug", containerId: "c1", what: "remove NICs eth0 of container c1", why: "" } as const;
  const failures = await applyNode(target, [unplug, ...removals], () => assert.fail("nothing is removed"));
  assert.deepEqual(failures, ["remove NICs eth0 of container c1: no answer for c1", "nothing more was removed"]);
  assert.ok(removals.every(({ path }) => existsSync(path)));
});

test("removeTree: folders go with their content, and links without their targets; a failure names the path and the system's reason", (t) => {
  const folder = mkdtempSync(join(tmpdir(), "isthmus-tree-"));
  t.after(() => rmSync(folder, { recursive: true }));
  const [tree, target] = [join(folder, "tree"), join(folder, "target")];
  mkdirSync(join(tree, "a/b"), { recursive: true });
  mkdirSync(target);
  writeFileSync(join(target, "theirs"), "");
  writeFileSync(join(tree, "a/b/file"), "");
  symlinkSync(target, join(tree, "a/link"));
  removeTree(tree);
  removeTree(tree);
  assert.deepEqual([existsSync(tree), existsSync(join(target, "theirs"))], [false, true]);
  const mounted = join(tree, "mounted");
  mkdirSync(mounted, { recursive: true });
  execFileSync("mount", ["-t", "tmpfs", "none", mounted]);
  try {
    assert.throws(() => removeTree(tree), { code: "EBUSY", message: new RegExp(`EBUSY.*rmdir '${mounted}'`) });
  } finally {
    execFileSync("umount", [mounted]);
  }
});
