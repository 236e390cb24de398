import assert from "node:assert/strict";
import { type ChildProcess, spawn } from "node:child_process";
import { closeSync, openSync } from "node:fs";
import { test } from "node:test";
import { FROM_SOURCE } from "#test/from-source";

/** A program whose help is its only output. */
const WORDS = [...FROM_SOURCE, "validate", "--help"];

async function outcome(child: ChildProcess): Promise<{ readonly code: number | null; readonly stderr: string }> {
  let stderr = "";
  child.stderr?.setEncoding("utf8").on("data", (chunk: string) => {
    stderr += chunk;
  });
  const { promise, resolve } = Promise.withResolvers<number | null>();
  child.once("close", resolve);
  return { code: await promise, stderr };
}

test("runProgram: a reader that has gone ends the program without a word", async () => {
  const child = spawn(process.execPath, WORDS, { stdio: ["ignore", "pipe", "pipe"] });
  child.stdout?.destroy();
  assert.deepEqual(await outcome(child), { code: 0, stderr: "" });
});

test("runProgram: output that cannot be written is named, and a failure", async () => {
  const full = openSync("/dev/full", "w");
  const child = spawn(process.execPath, WORDS, { stdio: ["ignore", full, "pipe"] });
  closeSync(full);
  const { code, stderr } = await outcome(child);
  assert.equal(code, 1);
  assert.match(stderr, /^isthmus validate: cannot write the output: ENOSPC.*\n$/);
});

test("runProgram: a fault is one line, whatever text it names", async () => {
  const child = spawn(process.execPath, [...FROM_SOURCE, "validate", "--no\n\u001b[2Jsuch\u009b"], {
    stdio: ["ignore", "pipe", "pipe"],
  });
  const { code, stderr } = await outcome(child);
  assert.equal(code, 2);
  assert.match(stderr, /^isthmus validate: [^\n]*--no\\n\\u001b\[2Jsuch\\u009b/);
  for (const line of stderr.trimEnd().split("\n")) assert.match(line, /^isthmus validate[: ]/);
});
