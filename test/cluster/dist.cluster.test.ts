/** `dist` copied to a node: it is complete, and names missing parts. */
import assert from "node:assert/strict";
import { cpSync, globSync, mkdtempSync, readFileSync, rmSync, statSync } from "node:fs";
import { tmpdir } from "node:os";
import { basename, dirname, join } from "node:path";
import { type TestContext, test } from "node:test";
import { ISTHMUS, start } from "#test/lab";

/** A copy far from the checkout, without the CNI executable, whose size would only take time. */
function copied(t: TestContext): string {
  const folder = mkdtempSync(join(tmpdir(), "isthmus-dist-"));
  t.after(() => rmSync(folder, { recursive: true, force: true }));
  cpSync(dirname(ISTHMUS), folder, {
    recursive: true,
    verbatimSymlinks: true,
    filter: (file) => basename(file) !== "cni",
  });
  return folder;
}

const run = (executable: string, ...args: string[]) =>
  start([executable, ...args], { env: { ISTHMUS_NODE: process.execPath, NODE_PATH: "" } }).ended;

test("dist: a copy of it works without the checkout", async (t) => {
  const folder = copied(t);
  const { code, stdout, stderr } = await run(join(folder, "isthmus"), "doctor");
  assert.deepEqual([code, stderr], [0, ""]);
  assert.match(stdout, /^has +veth/m);
  assert.match((await run(join(folder, "coild"), "--version")).stdout, /^coild \d/);
});

test("dist: each program starts with the compiled code of the build, and writes none of its own", async () => {
  const folder = dirname(ISTHMUS);
  const kept = (): Record<string, number> =>
    Object.fromEntries(
      globSync(join(folder, ".compile-cache/program-*")).map((file) => [basename(file), statSync(file).mtimeMs]),
    );
  const before = kept();
  const names = Object.keys(before).map((file) => /^program-(.+)\.cjs-/.exec(file)?.[1] ?? file);
  assert.ok(names.length >= 20, names.join(" "));
  for (const name of names) assert.equal((await run(ISTHMUS, name, "--version")).code, 0, name);
  assert.deepEqual(kept(), before);
});

test("dist: a part that was not copied is named, with the fix", async (t) => {
  const folder = copied(t);
  rmSync(join(folder, "node_modules"), { recursive: true });
  const { code, stderr } = await run(join(folder, "coild"), "--version");
  assert.equal(code, 1);
  assert.match(stderr, /^isthmus: a part of Isthmus is missing: .*koffi.*; copy the whole folder dist/);
  assert.equal(stderr.trim().split("\n").length, 1);
});

/** The text of all that a file of the bundle loads at its start. */
function loadedBy(file: string, seen = new Map<string, string>()): Map<string, string> {
  if (seen.has(file)) return seen;
  const text = readFileSync(file, "utf8");
  seen.set(file, text);
  for (const [, name = ""] of text.matchAll(/^(?:import|\} from) "\.\/([^"]+\.mjs)";$/gm))
    loadedBy(join(dirname(file), name), seen);
  return seen;
}

test("dist: no program but the lab's loads code of the lab, such as its API server", () => {
  const folder = dirname(ISTHMUS);
  const isOfLab = (file: string): boolean =>
    /^\/\/ src\/programs\/tools\/lab[\w-]*\/program\.ts$/m.test(readFileSync(file, "utf8"));
  const parts = globSync(join(folder, "*-????????.mjs")).filter((file) => !/\/(chunk-|host-)/.test(file));
  const programs = parts.filter((file) => !isOfLab(file));
  assert.equal(parts.length - programs.length, 3);
  assert.ok(programs.length >= 10, programs.join(" "));
  const own = globSync(join(folder, "program-*.cjs")).filter((file) => !file.endsWith("/program-lab.cjs"));
  assert.ok(own.length >= 10, own.join(" "));
  for (const program of new Set([...programs, ...own])) {
    const ofLab = [...loadedBy(program).values()].join("").match(/^\/\/ src\/lab\/.*$/gm) ?? [];
    assert.deepEqual(ofLab, [], basename(program));
  }
});
