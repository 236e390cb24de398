// own process: it replaces the timers of its process
import assert from "node:assert/strict";
import { test } from "node:test";
import { setImmediate } from "node:timers/promises";
import { setFlagsFromString } from "node:v8";
import { runInNewContext } from "node:vm";
import { releaseFreeMemory } from "#kernel/memory";
import { releaseMemoryAtRest } from "./release-memory.ts";

test("releaseMemoryAtRest: 5 s and 30 s after the start, then every ten minutes, and within a minute of a growth by 4 MiB", async (t) => {
  t.mock.timers.enable({ apis: ["setTimeout"] });
  let released = 0;
  let shrunk = 0;
  let rss = 40 << 20;
  releaseMemoryAtRest({
    heap: {
      shrink: () => {
        assert.equal(released, 0, "what the heap gives back is released with the rest");
        shrunk += 1;
      },
      collect: () => undefined,
      usedMs: () => 0,
    },
    release: async () => {
      released += 1;
      rss = Math.min(rss, 45 << 20);
    },
    rss: () => rss,
  });
  const after = async (ms: number): Promise<number> => {
    t.mock.timers.tick(ms);
    await setImmediate();
    return released;
  };
  const minutes = async (count: number): Promise<number> => {
    for (let at = 0; at < count; at += 1) await after(60_000);
    return released;
  };
  assert.equal(await after(4999), 0);
  assert.equal(await after(1), 1);
  assert.equal(await after(24_999), 1);
  assert.equal(await after(1), 2);
  assert.equal(await minutes(9), 2);
  assert.equal(await minutes(1), 3);
  rss += (4 << 20) - 1;
  assert.equal(await minutes(1), 3);
  rss = 60 << 20;
  assert.equal(await minutes(1), 4);
  assert.equal(await minutes(9), 4, "what is left is no growth");
  assert.equal(await minutes(1), 5);
  assert.equal(shrunk, 1);
});

test("releaseMemoryAtRest: the heap is collected once for each growth by 4 MiB, and only after a minute of rest", async (t) => {
  t.mock.timers.enable({ apis: ["setTimeout"] });
  let [collected, released, usedMs, rss] = [0, 0, 0, 40 << 20];
  releaseMemoryAtRest({
    heap: { shrink: () => undefined, collect: () => (collected += 1), usedMs: () => usedMs },
    release: async () => {
      released += 1;
    },
    rss: () => rss,
  });
  const minute = async (work: { readonly usedMs?: number; readonly rss?: number } = {}): Promise<number> => {
    usedMs += work.usedMs ?? 0;
    rss = work.rss ?? rss;
    t.mock.timers.tick(60_000);
    await setImmediate();
    return collected;
  };
  for (const ms of [5000, 25_000]) {
    t.mock.timers.tick(ms);
    await setImmediate();
  }
  assert.equal(await minute(), 0);
  assert.equal(await minute({ usedMs: 20_000, rss: 70 << 20 }), 0, "it works");
  assert.equal(await minute({ usedMs: 601 }), 0, "it works");
  const before = released;
  assert.equal(await minute({ usedMs: 600 }), 1);
  assert.equal(released, before + 1, "what the heap gives back is released with the rest");
  assert.equal(await minute({ rss: 45 << 20 }), 1);
  assert.equal(await minute({ rss: (49 << 20) - 1 }), 1);
  assert.equal(await minute({ rss: 49 << 20 }), 2, "since the pages of the last collection went");
  for (let at = 0; at < 20; at += 1) await minute();
  assert.equal(collected, 2, "what is left is in use");
});

test("releaseMemoryAtRest: without a free descriptor nothing is released and nothing fails; a minute later it is tried again", async (t) => {
  t.mock.timers.enable({ apis: ["setTimeout"] });
  const shortage = Object.assign(new Error("uv_resident_set_memory"), { code: "EMFILE" });
  let isShort = true;
  let released = 0;
  const unlessShort = (): void => {
    if (isShort) throw shortage;
  };
  releaseMemoryAtRest({
    release: async () => {
      unlessShort();
      released += 1;
    },
    rss: () => {
      unlessShort();
      return 40 << 20;
    },
  });
  for (const ms of [5000, 25_000, 60_000, 60_000]) {
    t.mock.timers.tick(ms);
    await setImmediate();
  }
  assert.equal(released, 0);
  isShort = false;
  t.mock.timers.tick(60_000);
  await setImmediate();
  assert.equal(released, 1);
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
