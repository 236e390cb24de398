import assert from "node:assert/strict";
import { test } from "node:test";
import { createLogger } from "#base/log";
import { openFiles, sayOpenFiles } from "./index.ts";

test("openFiles: what is kept, and two listeners full of silent clients, leave room for connections at every limit from 64 on", () => {
  for (const limit of [64, 300, 1024, 65_536, 1_048_576, Number.POSITIVE_INFINITY]) {
    const files = openFiles(limit);
    assert.ok(files.reserve >= 40 && files.reserve <= 168, `${limit}`);
    assert.ok(files.newcomers >= 4 && files.newcomers <= 1024, `${limit}`);
    assert.ok(2 * files.newcomers < limit - 40, `${limit}`);
    assert.ok(files.connections(2) * 2 + files.reserve <= limit, `${limit}`);
    assert.ok(files.connections(2) >= 1);
  }
  assert.equal(openFiles(300).connections(2), 111);
  assert.equal(openFiles(20).connections(2), 1);
});

test("sayOpenFiles: one line with the limit and the connections for which it is enough, in the same words without a limit", () => {
  const lines: unknown[] = [];
  const log = createLogger({ name: "t", write: (line) => lines.push(JSON.parse(line)) });
  sayOpenFiles(log, {}, openFiles(300));
  sayOpenFiles(log, { filesOfEach: 2 }, openFiles(300));
  sayOpenFiles(log, { filesOfEach: 2, atMost: 50 }, openFiles(300));
  sayOpenFiles(log, {}, openFiles(Number.POSITIVE_INFINITY));
  sayOpenFiles(log, { atMost: 50 }, openFiles(Number.POSITIVE_INFINITY));
  const said = lines.map((line) => {
    const { msg, limit, connections } = line as Readonly<Record<string, unknown>>;
    return [msg, limit, connections];
  });
  assert.deepEqual(said, [
    ["open files", 300, 223],
    ["open files", 300, 111],
    ["open files", 300, 50],
    ["open files", "unlimited", "unlimited"],
    ["open files", "unlimited", 50],
  ]);
});
