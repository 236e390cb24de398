// own process: it replaces the timers of its process
import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { join } from "node:path";
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
      usedBytes: () => 0,
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

test("releaseMemoryAtRest: the heap is collected once at rest after work that made it grow by 4 MiB, and what it gives back is released twice", async (t) => {
  t.mock.timers.enable({ apis: ["setTimeout"] });
  let [collected, released, usedMs, used] = [0, 0, 0, 20 << 20];
  releaseMemoryAtRest({
    heap: {
      shrink: () => undefined,
      collect: () => {
        collected += 1;
        used = 21 << 20;
      },
      usedMs: () => usedMs,
      usedBytes: () => used,
    },
    release: async () => {
      released += 1;
    },
    // V8 keeps its pages.
    rss: () => 70 << 20,
  });
  const after = async (ms: number): Promise<void> => {
    t.mock.timers.tick(ms);
    await setImmediate();
  };
  const minute = async (work: { readonly usedMs: number; readonly mib?: number }): Promise<number> => {
    usedMs += work.usedMs;
    used = work.mib === undefined ? used : work.mib << 20;
    await after(60_000);
    return collected;
  };
  for (const ms of [5000, 25_000]) await after(ms);
  assert.equal(await minute({ usedMs: 20_000, mib: 40 }), 0, "it works from the start");
  assert.equal(await minute({ usedMs: 1801 }), 0, "it works");
  assert.equal(await minute({ usedMs: 900, mib: 20 }), 0);
  assert.equal(await minute({ usedMs: 20_000, mib: 40 }), 0, "it works");
  assert.equal(await minute({ usedMs: 1351 }), 0, "it works");
  const before = released;
  assert.equal(await minute({ usedMs: 1350 }), 1, "it uses no more than half again of its least");
  assert.equal(released, before + 1);
  await after(3000);
  assert.equal(released, before + 2, "what other threads of V8 free later is released too");
  assert.equal(await minute({ usedMs: 20_000, mib: 24 }), 1);
  assert.equal(await minute({ usedMs: 900 }), 1, "it has grown by less");
  assert.equal(await minute({ usedMs: 900, mib: 25 }), 2);
  for (let at = 0; at < 9; at += 1) assert.equal(await minute({ usedMs: 900, mib: 30 }), 2, "it has not worked");
  assert.equal(await minute({ usedMs: 900 }), 3, "that was ten minutes ago");
  for (let at = 0; at < 20; at += 1) await minute({ usedMs: 900 });
  assert.equal(collected, 3, "what is left is in use");
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

/**
 * The old generation of a program that has made much garbage between objects that stay, after a collection as at rest: what is in use, the pages, and what was freed, in bytes. `large`: with a heap that is too
 * large for a small program's collection.
 */
function collectedPages(profile: "small" | "host", { large }: { readonly large: boolean }) {
  const script = `import { getHeapSpaceStatistics } from "node:v8";
import { ownMemory } from "./src/programs/start/release-memory.ts";
if (${large}) globalThis.more = Array.from({ length: 1_500_000 }, (_, at) => ({ at }));
let kept = [];
for (let at = 0; at < 400_000; at += 1) kept.push({ at });
globalThis.some = kept.filter((_, at) => at % 1000 === 0);
kept = undefined;
const before = process.memoryUsage().heapUsed;
ownMemory("${profile}").heap.collect();
const freed = before - process.memoryUsage().heapUsed;
const old = getHeapSpaceStatistics().find((one) => one.space_name === "old_space");
console.log(JSON.stringify({ live: old.space_used_size, pages: old.physical_space_size, freed }));`;
  const argv = ["--input-type=module", "--eval", script];
  const cwd = join(import.meta.dirname, "../../..");
  const figures = JSON.parse(execFileSync(process.execPath, argv, { cwd, encoding: "utf8" }));
  return figures as { readonly live: number; readonly pages: number; readonly freed: number };
}

test("ownMemory: a collection at rest leaves few empty pages, also where some objects of each page stay", () => {
  const { live, pages } = collectedPages("small", { large: false });
  assert.ok(pages < 1.3 * live, `${live} bytes in use, ${pages} of pages`);
});

test("ownMemory: a large heap is collected of a lab's host alone", () => {
  const [host, small] = [collectedPages("host", { large: true }), collectedPages("small", { large: true })];
  assert.ok(host.freed > 5_000_000, `${host.freed} bytes are freed`);
  assert.ok(small.freed < 1_000_000, `${small.freed} bytes are freed`);
});
