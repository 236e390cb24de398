import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { once } from "node:events";
import { join } from "node:path";
import { test } from "node:test";

const PROGRAM = join(import.meta.dirname, "testing/much-logging.ts");

test("createLogger: lines that nobody reads take a bounded amount of memory, and the reader is told how many were dropped", async () => {
  const child = spawn(process.execPath, [PROGRAM], { stdio: ["pipe", "pipe", "pipe"] });
  const [waiting] = (await once(child.stdout, "data")) as [Buffer];
  let text = "";
  child.stderr.setEncoding("utf8").on("data", (chunk: string) => {
    text += chunk;
    if (text.includes("dropped")) child.stdin.end();
  });
  const bytes = Number(waiting.toString());
  if (bytes > 2 << 20) child.kill();
  await once(child, "close");
  assert.ok(bytes <= 2 << 20, `${bytes} bytes wait`);
  const lines = text.trimEnd().split("\n");
  const parsed = lines.map((line) => JSON.parse(line) as { msg: string; at?: number; lines?: number; level: string });
  const dropped = parsed.findIndex(({ lines: count }) => count !== undefined);
  assert.equal(parsed[dropped]?.level, "warn");
  assert.equal(parsed[dropped]?.lines, 40_000 - dropped, "the lines before it are there, whole and in order");
  assert.deepEqual(
    parsed.slice(0, dropped).map(({ at }) => at),
    Array.from({ length: dropped }, (_, at) => at),
  );
  assert.equal(parsed.at(-1)?.msg, "the last line");
});
