import assert from "node:assert/strict";
import { test } from "node:test";
import { setImmediate } from "node:timers/promises";
import { setFlagsFromString } from "node:v8";
import { runInNewContext } from "node:vm";
import { releaseFreeMemory } from "#kernel/memory";
import { releaseMemoryAtRest } from "./release-memory.ts";

test("releaseMemoryAtRest: 5 s and 30 s after the start, then every ten minutes", async (t) => {
  t.mock.timers.enable({ apis: ["setTimeout"] });
  let released = 0;
  releaseMemoryAtRest(async () => {
    released += 1;
  });
  const after = async (ms: number): Promise<number> => {
    t.mock.timers.tick(ms);
    await setImmediate();
    return released;
  };
  assert.equal(await after(4999), 0);
  assert.equal(await after(1), 1);
  assert.equal(await after(24_999), 1);
  assert.equal(await after(1), 2);
  assert.equal(await after(599_999), 2);
  assert.equal(await after(1), 3);
  assert.equal(await after(600_000), 4);
});

test("releaseFreeMemory: memory that was freed between blocks in use goes back to the kernel", async () => {
  setFlagsFromString("--expose-gc");
  const collect = runInNewContext("gc") as () => void;
  // 60 KiB is below malloc's threshold for a mapping of its own, so the blocks lie side by side in the heap.
  const blocks = Array.from({ length: 1000 }, () => Buffer.alloc(60 * 1024, 1));
  const kept = blocks.filter((_, at) => at % 100 === 99);
  blocks.length = 0;
  collect();
  await setImmediate();
  collect();
  const before = process.memoryUsage.rss();
  assert.equal(releaseFreeMemory(), true);
  const freed = before - process.memoryUsage.rss();
  assert.ok(freed > 30 * 1024 * 1024, `${freed} bytes`);
  assert.equal(kept.length, 10);
});
