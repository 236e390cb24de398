import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "fast-check";
import { Deferred } from "#base/async";
import { FakeClock, systemClock } from "#base/clock";
import { RetryLimiter, runWorkers, WorkQueue } from "./index.ts";

test("queue: a key that waits is not added again, and keys come in order", async () => {
  const queue = new WorkQueue({ clock: systemClock });
  for (const key of ["a", "b", "a", "c"]) queue.add(key);
  assert.equal(queue.depth, 3);
  assert.deepEqual([await queue.take(), await queue.take(), await queue.take()], ["a", "b", "c"]);
});

test("queue: a key added while it is processed is handed out again only after done", async () => {
  const queue = new WorkQueue({ clock: systemClock });
  queue.add("a");
  assert.equal(await queue.take(), "a");
  queue.add("a");
  queue.add("a");
  assert.equal(queue.depth, 0);
  queue.done("a");
  assert.equal(queue.depth, 1);
  assert.equal(await queue.take(), "a");
  queue.done("a");
  assert.equal(queue.depth, 0);
});

test("queue: takers that wait are served in order, an aborted one is skipped", async () => {
  const queue = new WorkQueue({ clock: systemClock });
  const stop = new AbortController();
  const aborted = queue.take({ signal: stop.signal });
  const first = queue.take();
  const second = queue.take();
  stop.abort(new Error("enough"));
  await assert.rejects(aborted, /enough/);
  queue.add("a");
  queue.add("b");
  assert.deepEqual(await Promise.all([first, second]), ["a", "b"]);
});

test("queue: addAfter waits, and the earliest of several times counts", async () => {
  const clock = new FakeClock();
  const queue = new WorkQueue({ clock });
  queue.addAfter("a", 100);
  queue.addAfter("a", 50);
  queue.addAfter("a", 80);
  await clock.advance(49);
  assert.equal(queue.depth, 0);
  await clock.advance(1);
  assert.equal(queue.depth, 1);
  assert.equal(clock.pending, 0);
});

test("queue: retries back off per key, and forget starts anew", async () => {
  const clock = new FakeClock();
  const queue = new WorkQueue({ clock, retry: { initialMs: 10, maxMs: 50, jitter: 0 } });
  assert.deepEqual([queue.retry("a"), queue.retry("a"), queue.retry("a"), queue.retry("a")], [10, 20, 40, 50]);
  assert.equal(queue.retry("b"), 10);
  assert.equal(queue.failures("a"), 4);
  queue.forget("a");
  assert.equal(queue.failures("a"), 0);
  assert.equal(queue.retry("a"), 10);
});

test("queue: retries of all keys together are limited", () => {
  const limiter = new RetryLimiter({ clock: new FakeClock(), initialMs: 1, jitter: 0, ratePerSecond: 10, burst: 2 });
  assert.deepEqual(
    ["a", "b", "c", "d"].map((key) => Math.round(limiter.when(key))),
    [1, 1, 100, 200],
  );
});

test("queue: drain hands out waiting keys, waits for them, and drops delayed ones", async () => {
  const clock = new FakeClock();
  const queue = new WorkQueue({ clock });
  queue.add("a");
  queue.addAfter("late", 5);
  let drained = false;
  const draining = queue.drain().then(() => {
    drained = true;
  });
  queue.add("refused");
  assert.equal(await queue.take(), "a");
  assert.equal(await queue.take(), undefined);
  assert.equal(drained, false);
  queue.done("a");
  await draining;
  assert.equal(clock.pending, 0);
  await new WorkQueue({ clock: systemClock }).drain();
});

test("queue: each change of the depth is reported", async () => {
  const depths: number[] = [];
  const queue = new WorkQueue({ onDepth: (depth) => depths.push(depth), clock: systemClock });
  queue.add("a");
  queue.add("b");
  await queue.take();
  assert.deepEqual(depths, [1, 2, 1]);
});

test("runWorkers: never more than the workers, never one key twice at a time", async () => {
  const queue = new WorkQueue({ clock: systemClock });
  const running = new Set<string>();
  let most = 0;
  let count = 0;
  const stop = new AbortController();
  const done = runWorkers(queue, {
    workers: 3,
    signal: stop.signal,
    process: async (key) => {
      assert.ok(!running.has(key));
      running.add(key);
      most = Math.max(most, running.size);
      queue.add(`${Number(key) % 5}`);
      await new Promise((resolve) => setImmediate(resolve));
      running.delete(key);
      count += 1;
      if (count === 100) stop.abort();
    },
  });
  for (let key = 0; key < 10; key += 1) queue.add(String(key));
  await done;
  assert.equal(most, 3);
});

test("runWorkers: an error of process ends all, a shut down queue ends them cleanly", async () => {
  const queue = new WorkQueue({ clock: systemClock });
  queue.add("a");
  const { signal } = new AbortController();
  const bug = new TypeError("bug");
  await assert.rejects(runWorkers(queue, { workers: 2, signal, process: () => Promise.reject(bug) }), bug);
  const gate = new Deferred();
  const second = new WorkQueue({ clock: systemClock });
  second.add("a");
  const ended = runWorkers(second, { workers: 2, signal, process: () => gate.promise });
  second.shutDown();
  gate.resolve();
  await ended;
});

test("queue: whatever is done to it, each added key is handed out afterwards and none is lost", async () => {
  const step = fc.record({
    op: fc.constantFrom("add", "later", "take", "done", "retry"),
    key: fc.constantFrom("a", "b", "c"),
  });
  await fc.assert(
    fc.asyncProperty(fc.array(step, { maxLength: 60 }), async (steps) => {
      const clock = new FakeClock();
      const queue = new WorkQueue({ clock, retry: { initialMs: 1, maxMs: 10 } });
      const owed = new Set<string>();
      const held = new Set<string>();
      const take = async (): Promise<void> => {
        const key = (await queue.take()) ?? "";
        assert.ok(!held.has(key), "handed out twice");
        held.add(key);
        owed.delete(key);
      };
      for (const { op, key } of steps) {
        if (op === "add") queue.add(key);
        if (op === "later") queue.addAfter(key, 5);
        if (op === "retry") queue.retry(key);
        if (op === "add" || op === "later" || op === "retry") owed.add(key);
        if (op === "take" && queue.depth > 0) await take();
        if (op === "done" && held.delete(key)) queue.done(key);
      }
      for (const key of held) queue.done(key);
      held.clear();
      await clock.advance(100_000);
      while (queue.depth > 0) await take();
      assert.deepEqual([...owed], []);
      assert.equal(clock.pending, 0);
    }),
    { numRuns: 50 },
  );
});
