import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { existsSync, mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { type TestContext, test } from "node:test";
import { failuresOfGuest, faultsOf, listedFiles, Outcomes } from "./test-outcomes.ts";

const root = join(import.meta.dirname, "..");

test("outcomes: a file that runs again replaces its results, and no other file's", () => {
  const outcomes = new Outcomes();
  outcomes.add("a.test.ts", [{ kind: "passed" }, { kind: "failed", text: "one: not so" }]);
  outcomes.add("b.test.ts", [{ kind: "passed" }, { kind: "skipped" }]);
  outcomes.add("c.test.ts", [{ kind: "failed", text: "two: not so" }]);
  assert.deepEqual(outcomes.failed, ["a.test.ts", "c.test.ts"]);
  assert.deepEqual(outcomes.forget("a.test.ts"), ["one: not so"]);
  outcomes.add("a.test.ts", [{ kind: "passed" }, { kind: "passed" }]);
  assert.deepEqual(outcomes.all, { passed: 3, skipped: 1, failures: ["c.test.ts: two: not so"] });
});

test("faultsOf: CI forgives three files that passed only alone, no fourth, and none that docs/flaky.md lists; elsewhere none is forgiven", () => {
  const listed = listedFiles("| file | cause |\n| --- | --- |\n| `src/old.test.ts` | a race |\n");
  assert.deepEqual([...listed], ["src/old.test.ts"]);
  const three = ["a.test.ts", "b.test.ts", "c.test.ts"];
  assert.deepEqual(faultsOf([], { listed, isCI: false }), []);
  assert.deepEqual(faultsOf(three, { listed, isCI: true }), []);
  assert.equal(faultsOf([...three, "d.test.ts"], { listed, isCI: true }).length, 4);
  assert.equal(faultsOf(["a.test.ts"], { listed, isCI: false }).length, 1);
  assert.match(faultsOf(["a.test.ts", "src/old.test.ts"], { listed, isCI: true }).join(), /^src\/old.test.ts .*flaky/);
});

test("failuresOfGuest: the failed tests of a report, by file", () => {
  const report =
    "ℹ fail 1\n\n✖ failing tests:\n\ntest at test/vm/fou.vm.test.ts:7:1\n✖ fou: works (3ms)\n  Error: no\n";
  assert.deepEqual(failuresOfGuest(report), [{ file: "test/vm/fou.vm.test.ts", text: "fou: works (3ms)" }]);
});

test("docs/flaky.md: each file that it lists exists", () => {
  for (const file of listedFiles(readFileSync(join(root, "docs/flaky.md"), "utf8")))
    assert.ok(existsSync(join(root, file)), file);
});

interface Run {
  readonly status: number | null;
  readonly stdout: string;
  /** The text that the run wrote into `.state/passed-only-alone.txt`. */
  readonly alone: string;
}

/** Runs a tier of a checkout that has these files. */
function runTests(t: TestContext, files: Readonly<Record<string, string>>, ci: boolean, tier = "unit"): Run {
  const checkout = mkdtempSync(join(tmpdir(), "isthmus-run-test-"));
  t.after(() => rmSync(checkout, { recursive: true }));
  for (const folder of ["src", "docs"]) mkdirSync(join(checkout, folder));
  for (const [name, text] of Object.entries(files)) writeFileSync(join(checkout, name), text);
  const env: NodeJS.ProcessEnv = { ...process.env, ISTHMUS_TEST_ROOT: checkout, CI: String(ci) };
  // A file that runs in a test runner's process would report to that runner.
  Reflect.deleteProperty(env, "NODE_TEST_CONTEXT");
  const argv = [join(import.meta.dirname, "test.ts"), tier];
  const { status, stdout, stderr } = spawnSync(process.execPath, argv, { env, encoding: "utf8", timeout: 60_000 });
  assert.equal(stderr, "");
  return { status, stdout, alone: readFileSync(join(checkout, ".state/passed-only-alone.txt"), "utf8") };
}

const imports = 'import { test } from "node:test"; import { existsSync, writeFileSync } from "node:fs";\n';
/** A body that fails the first time it runs. */
const onceRed = (how: string): string =>
  `const mark = import.meta.filename + ".ran"; if (!existsSync(mark)) { writeFileSync(mark, ""); ${how} }`;
const GOOD = `${imports} test("good", () => undefined);`;
const FLAKY = `${imports} test("first", () => undefined); test("flaky", () => { ${onceRed('throw new Error("too late");')} });`;
const BAD = `${imports} test("bad", () => { throw new Error("never so"); });`;
/** Ends the process that it shares with others. */
const CRASH = `${imports} test("crash", () => { ${onceRed("process.exit(3);")} });`;

test("run test: files that fail beside others and pass alone are named, and forgiven by CI; what they did not let run runs", (t) => {
  // Of thirteen files the first and the last share a process.
  const good = Array.from({ length: 11 }, (_, at) => [`src/m${at + 10}.test.ts`, GOOD] as const);
  const files = { "src/a.test.ts": CRASH, ...Object.fromEntries(good), "src/z.test.ts": GOOD, "src/b.test.ts": FLAKY };
  const all = { ...files, "src/y.test.ts": `// own process: it is the test's\n${FLAKY}` };
  const { status, stdout, alone } = runTests(t, all, true);
  assert.equal(status, 0, stdout);
  assert.match(stdout, /\n17 passed, 0 failed, 0 skipped\n$/);
  assert.match(stdout, /\npassed only alone: src\/b\.test\.ts: flaky: too late\n/);
  assert.deepEqual(
    alone.split("\n").map((line) => line.split(": ")[0]),
    ["src/b.test.ts", "src/y.test.ts", "src/a.test.ts", ""],
  );
});

test("run test: a file that fails again is red, and so is one that docs/flaky.md lists", (t) => {
  const page = "| file | cause |\n| --- | --- |\n| `src/b.test.ts` | a race |\n";
  const files = { "src/a.test.ts": BAD, "src/b.test.ts": FLAKY, "src/c.test.ts": GOOD, "docs/flaky.md": page };
  const { status, stdout, alone } = runTests(t, files, true);
  assert.equal(status, 1);
  assert.match(stdout, /\nfailed: src\/a\.test\.ts: bad: never so\n/);
  assert.match(stdout, /\nfailed: src\/b\.test\.ts passed only alone, and docs\/flaky\.md lists it/);
  assert.match(stdout, /\n3 passed, 2 failed, 0 skipped\n$/);
  assert.equal(alone, "src/b.test.ts: flaky: too late\n");
});

test("run test: a file that failed and skips all its tests alone has not passed", (t) => {
  const skips = `${imports} const mark = import.meta.filename + ".ran"; const skip = existsSync(mark) && "kernel: none"; writeFileSync(mark, "");
    test("one", { skip }, () => { throw new Error("too late"); });`;
  const { status, stdout, alone } = runTests(t, { "src/a.test.ts": skips, "src/b.test.ts": GOOD }, true);
  assert.equal(status, 1);
  assert.match(stdout, /\nfailed: src\/a\.test\.ts: one: too late\n/);
  assert.equal(alone, "");
});

test("run test: of files that run in turn one runs beside quiet ones, and two when these are done", (t) => {
  // Each file writes when it starts and ends, and waits for what the schedule has begun or ended meanwhile.
  const file = (kind: string, name: string, waits: string): string => `// ${kind}: it is the test's
    ${imports} import { join } from "node:path"; import { setTimeout } from "node:timers/promises";
    const is = (what) => existsSync(join(import.meta.dirname, what));
    const mark = (what) => writeFileSync(join(import.meta.dirname, what), "");
    test("${name}", async () => { mark("${name}.start"); ${waits} mark("${name}.end"); });`;
  const until = (what: string): string =>
    `for (let tries = 0; !is("${what}"); tries += 1) { if (tries > 1000) throw new Error("no ${what}"); await setTimeout(20); }`;
  const files = {
    // The second file starts when the first has ended, the third not before the quiet one has.
    "src/quiet.netns.test.ts": file("quiet", "quiet", `${until("a.end")} ${until("b.start")}`),
    "src/a.netns.test.ts": file("in turn", "a", until("quiet.start")),
    "src/b.netns.test.ts": file(
      "in turn",
      "b",
      `if (is("c.start")) throw new Error("c is early"); ${until("c.start")}`,
    ),
    "src/c.netns.test.ts": file(
      "in turn",
      "c",
      `if (!is("quiet.end")) throw new Error("the quiet file runs"); ${until("b.end")}`,
    ),
  };
  const { status, stdout } = runTests(t, files, true, "netns");
  assert.equal(status, 0, stdout);
  assert.match(stdout, /\n4 passed, 0 failed, 0 skipped\n$/);
});

test("run test: an error outside of the calls of a test is that test's, in a process of its own and in a shared one", (t) => {
  const late = (text: string): string =>
    `${imports} import { setTimeout as wait } from "node:timers/promises";
    test("late", async () => { setTimeout(() => { throw new Error("${text}"); }, 1); await wait(50); });`;
  const rejects = `${imports} import { setTimeout as wait } from "node:timers/promises";
    test("rejects", async () => { void Promise.reject(new Error("third")); await wait(50); });`;
  const files = {
    "src/a.test.ts": late("first"),
    "src/b.test.ts": `// own process: it is the test's\n${late("second")}`,
    "src/c.test.ts": rejects,
    "src/d.test.ts": GOOD,
  };
  const { status, stdout } = runTests(t, files, true);
  assert.equal(status, 1, stdout);
  assert.match(stdout, /\nfailed: src\/a\.test\.ts: late: first\n/);
  assert.match(stdout, /\nfailed: src\/b\.test\.ts: late: second\n/);
  assert.match(stdout, /\nfailed: src\/c\.test\.ts: rejects: third\n/);
  assert.match(stdout, /\n1 passed, 3 failed, 0 skipped\n$/);
});

test("run test: hooks and tests of suites belong to their suite, also those that an async body adds after it has waited", (t) => {
  const checkout = mkdtempSync(join(tmpdir(), "isthmus-suites-"));
  t.after(() => rmSync(checkout, { recursive: true }));
  const file = join(checkout, "a.test.mjs");
  writeFileSync(
    file,
    `import { after, before, beforeEach, describe, test } from "node:test";
import { setTimeout as wait } from "node:timers/promises";
const log = (text) => console.log("ran " + text);
for (const name of ["a", "b"])
  describe(name, async () => {
    before(() => log("before " + name));
    after(() => log("after " + name));
    test("one", async (t) => {
      log("one " + name);
      await t.test("part", async () => { await wait(1); log("part " + name); });
    });
    await wait(2);
    beforeEach(() => log("each " + name));
    describe("inner", () => {
      before(() => log("before inner " + name));
      test("two", () => log("two " + name));
    });
  });`,
  );
  const env = { ...process.env };
  Reflect.deleteProperty(env, "NODE_TEST_CONTEXT");
  const run = (...flags: readonly string[]): readonly string[] =>
    spawnSync(process.execPath, [...flags, file], { env, encoding: "utf8" })
      .stdout.split("\n")
      .filter((line) => /^(ran | *[▶✔] )/.test(line))
      .map((line) => line.replace(/ \([\d.]+ms\)$/, ""));
  const usual = run();
  assert.ok(usual.includes("ran before inner b") && usual.includes("  ▶ inner"), usual.join("\n"));
  assert.deepEqual(run(`--import=${join(import.meta.dirname, "without-async-hooks.mjs")}`), usual);
});
