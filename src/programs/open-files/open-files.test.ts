import assert from "node:assert/strict";
import { test } from "node:test";
import { openFiles } from "./index.ts";

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
