/**
 * Changes one operator of a file at a time, and runs the unit tests of its feature: a change that no test notices is a line that nobody proves.
 *
 *     node tools/mutants.ts FILE [--tests=FILE[,FILE...]]
 *
 * The tests are those of the unit tier below the file's own folder, and where there are none below the next folder up that has some. No file is
 * written: the changed code is given to the process of the tests as it loads. The exit code is 1 if a change survives, 2 for a wrong command line.
 * A change can also be one that makes no difference, which the reader has to tell.
 */
import "./require-node.ts";
import { spawn } from "node:child_process";
import { once } from "node:events";
import { existsSync, globSync, readFileSync } from "node:fs";
import { availableParallelism } from "node:os";
import { dirname, join, relative, resolve } from "node:path";
import { parseArgs } from "node:util";
import { type Mutant, mutantsOf } from "./mutant-code.ts";

const root = join(import.meta.dirname, "..");
const UNIT = /(?<!\.netns)\.test\.ts$/;
/** A change can make a loop endless. */
const TIMEOUT_MS = 60_000;

/** The unit tests of the nearest folder that has some, from the root of the checkout. */
function testsNear(file: string): readonly string[] {
  for (let folder = dirname(file); folder !== "."; folder = dirname(folder)) {
    const tests = globSync(`${folder}/**/*.test.ts`, { cwd: root }).filter((one) => UNIT.test(one));
    if (tests.length > 0) return tests.sort();
  }
  return [];
}

/** Runs the tests, with a change or without one; resolves with true if they pass. */
async function passes(tests: readonly string[], mutant: (Mutant & { readonly path: string }) | undefined) {
  const hook = mutant === undefined ? [] : [`--import=${join(import.meta.dirname, "mutant-hook.ts")}`];
  // Below a test Node's runner would report to that one, and end with 0.
  const { NODE_TEST_CONTEXT: _context, ...env } = process.env;
  const child = spawn(process.execPath, [...hook, "--test", ...tests], {
    cwd: root,
    stdio: "ignore",
    timeout: TIMEOUT_MS,
    killSignal: "SIGKILL",
    env: { ...env, ISTHMUS_MUTANT: JSON.stringify(mutant ?? null) },
  });
  const [code] = (await once(child, "close")) as [number | null];
  return code === 0;
}

/** Returns the changes that no test notices. */
async function survivorsOf(file: string, tests: readonly string[]): Promise<readonly Mutant[]> {
  const path = join(root, file);
  const queue = [...mutantsOf(readFileSync(path, "utf8"))];
  const survivors: Mutant[] = [];
  const total = queue.length;
  const worker = async (): Promise<void> => {
    for (let mutant = queue.shift(); mutant !== undefined; mutant = queue.shift()) {
      if (await passes(tests, { ...mutant, path })) survivors.push(mutant);
      if (process.stderr.isTTY) process.stderr.write(`\r${total - queue.length} of ${total}`);
    }
  };
  await Promise.all(Array.from({ length: availableParallelism() }, worker));
  if (process.stderr.isTTY) process.stderr.write("\r");
  console.log(`${file}: ${total} changes, ${survivors.length} survive ${tests.length} test files`);
  return survivors.sort((one, other) => one.at - other.at);
}

const { values, positionals } = parseArgs({
  options: { tests: { type: "string", default: "" } },
  allowPositionals: true,
});
const [given, ...more] = positionals;
const file = given === undefined ? "" : relative(root, resolve(given));
if (given === undefined || more.length > 0 || !existsSync(join(root, file))) {
  console.error("usage: node tools/mutants.ts FILE [--tests=FILE[,FILE...]]");
  process.exit(2);
}
const tests = values.tests === "" ? testsNear(file) : values.tests.split(",");
if (tests.length === 0 || !(await passes(tests, undefined))) {
  console.error(
    tests.length === 0 ? `no unit test is near ${file}` : `the tests fail without a change: ${tests.join(" ")}`,
  );
  process.exit(2);
}
const survivors = await survivorsOf(file, tests);
const lines = readFileSync(join(root, file), "utf8").split("\n");
for (const { line, column, from, to } of survivors)
  console.log(`${file}:${line}:${column}: ${from.trim()} to ${to.trim() || "nothing"}: ${lines[line - 1]?.trim()}`);
process.exitCode = survivors.length > 0 ? 1 : 0;
