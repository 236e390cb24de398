import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { once } from "node:events";
import { text } from "node:stream/consumers";
import { test } from "node:test";
import { fileURLToPath } from "node:url";

const TIMEOUT = { timeout: 30_000 };

/** Runs a program, and returns its output and exit code; after 10 s it is killed. */
async function run(
  program: string,
  ...words: readonly string[]
): Promise<{ out: string; aborted: boolean; code: number | null; signal: string | null }> {
  const script = fileURLToPath(new URL(`./testing/${program}`, import.meta.url));
  const child = spawn(process.execPath, [script, ...words], { timeout: 10_000 });
  const exited = once(child, "exit") as Promise<[number | null, string | null]>;
  const [out, errors, [code, signal]] = await Promise.all([text(child.stdout), text(child.stderr), exited]);
  return { out, aborted: /Assertion|stack trace|open handles/.test(errors), code, signal };
}

const EXPECTED = {
  bug: { out: "error: a bug of the thread\nthread: 1, sockets: 0\n", code: 0 },
  exit: { out: "thread: 7, sockets: 0\n", code: 0 },
  terminate: { out: "thread: 1, sockets: 20\n", code: 0 },
  leave: { out: "", code: 0 },
  "exit-of-main": { out: "", code: 5 },
  "bug-of-main": { out: "", code: 1 },
} as const;

for (const [how, { out, code }] of Object.entries(EXPECTED)) {
  test(`reactor: a thread with live connections may end by ${how}: nothing is aborted`, TIMEOUT, async () => {
    assert.deepEqual(await run("ending-program.ts", how), { out, aborted: false, code, signal: null });
  });
}

test("reactor: a descriptor that other code closed does not keep the thread alive", TIMEOUT, async () => {
  const expected = { out: "the same number", aborted: false, code: 0, signal: null };
  assert.deepEqual(await run("number-again.ts"), expected);
});

test(
  "reactor: an error that a listener throws keeps no event from the others, and is thrown once",
  TIMEOUT,
  async () => {
    const { out, code } = await run("throwing-listener.ts");
    assert.equal(code, 0);
    const closed = ["fourth close", "one close", "second close", "third close"];
    const finished = ["one finish", "third finish"];
    assert.deepEqual(out.split("\n").sort(), [...closed, ...finished, "thrown of a finish", "thrown of data"].sort());
  },
);
