import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "fast-check";
import { FakeClock } from "#base/clock";
import {
  Backoff,
  Deferred,
  Dirty,
  KeyedMutex,
  pause,
  Semaphore,
  sleep,
  TaskGroup,
  TimeSlice,
  withDeadline,
} from "./index.ts";

/** Resolves with true if a promise has settled by now. */
async function isSettled(promise: Promise<unknown>): Promise<boolean> {
  const pending = Symbol("pending");
  await new Promise((resolve) => setImmediate(resolve));
  return (await Promise.race([promise.catch(() => undefined), Promise.resolve(pending)])) !== pending;
}

test("sleep: ends when its time has come, not before", async () => {
  const clock = new FakeClock();
  const done = sleep(100, { clock });
  await clock.advance(99);
  assert.equal(await isSettled(done), false);
  await clock.advance(1);
  await done;
  assert.equal(clock.pending, 0);
});

test("sleep: an abort rejects with the signal's reason at once and leaves no timer", async () => {
  const clock = new FakeClock();
  const stop = new AbortController();
  const done = sleep(100, { clock, signal: stop.signal });
  const reason = new Error("enough");
  stop.abort(reason);
  await assert.rejects(done, reason);
  assert.equal(clock.pending, 0);
  await assert.rejects(sleep(1, { clock, signal: stop.signal }), reason);
});

test("pause: ends after its time or at the abort, without an error and without a timer left", async () => {
  const clock = new FakeClock();
  const timed = pause(100, { clock });
  await clock.advance(100);
  await timed;
  const stop = new AbortController();
  const aborted = pause(100, { clock, signal: stop.signal });
  stop.abort();
  await aborted;
  await pause(100, { clock, signal: stop.signal });
  assert.equal(clock.pending, 0);
});

test("TimeSlice: is over after its length, and the next one starts after the yield", async () => {
  const clock = new FakeClock();
  const slice = new TimeSlice({ clock, lengthMs: 5 });
  await clock.advance(4);
  assert.equal(slice.isOver, false);
  await clock.advance(1);
  assert.equal(slice.isOver, true);
  await slice.yield();
  assert.equal(slice.isOver, false);
});

test("withDeadline: the work's signal aborts at the deadline, and the timer ends with the work", async () => {
  const clock = new FakeClock();
  const late = withDeadline(50, (signal) => sleep(1000, { clock, signal }), { clock });
  late.catch(() => undefined);
  await clock.advance(50);
  await assert.rejects(late, { name: "TimeoutError", message: "the operation was not done within 50 ms" });
  assert.equal(await withDeadline(50, async () => "done", { clock }), "done");
  assert.equal(clock.pending, 0);
});

test("withDeadline: an abort from outside reaches the work, also one from before", async () => {
  const clock = new FakeClock();
  const stop = new AbortController();
  const work = withDeadline(50, (signal) => sleep(1000, { clock, signal }), { clock, signal: stop.signal });
  stop.abort(new Error("outside"));
  await assert.rejects(work, { message: "outside" });
  await assert.rejects(
    withDeadline(50, (signal) => sleep(1, { clock, signal }), { clock, signal: stop.signal }),
    {
      message: "outside",
    },
  );
});

test("Backoff: delays grow by the factor up to the bound, and start again after a success", () => {
  const backoff = new Backoff({ initialMs: 100, maxMs: 500, jitter: 0 });
  assert.deepEqual(
    [1, 2, 3, 4, 5].map(() => backoff.next()),
    [100, 200, 400, 500, 500],
  );
  backoff.reset();
  assert.equal(backoff.next(), 100);
});

test("Backoff: with jitter a delay lies in [(1 - jitter) d, d] and is never above the bound", () => {
  fc.assert(
    fc.property(
      fc.double({ min: 0, max: 1, noNaN: true }),
      fc.double({ min: 0, max: 0.999, noNaN: true }),
      fc.nat(5000),
      (jitter, random, failures) => {
        const backoff = new Backoff({ initialMs: 10, maxMs: 1000, jitter, random: () => random });
        const full = Math.min(1000, 10 * 2 ** Math.min(failures, 64));
        const delay = backoff.delay(failures);
        assert.ok(delay <= full && delay >= full * (1 - jitter) - 1e-9, `${delay}`);
      },
    ),
  );
});

test("Dirty: many marks before a wait are one wake-up", async () => {
  const clock = new FakeClock();
  const dirty = new Dirty(clock);
  for (let at = 0; at < 5; at += 1) dirty.mark("test");
  await dirty.wait({ atMostMs: 1000 });
  const next = dirty.wait({ atMostMs: 1000 });
  assert.equal(await isSettled(next), false);
  dirty.mark("test");
  await next;
  assert.equal(clock.pending, 0);
});

test("Dirty: a wait ends after its time and on abort, without an error", async () => {
  const clock = new FakeClock();
  const dirty = new Dirty(clock);
  const timed = dirty.wait({ atMostMs: 10 });
  await clock.advance(10);
  await timed;
  const stop = new AbortController();
  const aborted = dirty.wait({ atMostMs: 10, signal: stop.signal });
  stop.abort();
  await aborted;
  await dirty.wait({ atMostMs: 10, signal: stop.signal });
  assert.equal(clock.pending, 0);
});

test("Dirty: a mark during the work is not lost", async () => {
  const dirty = new Dirty(new FakeClock());
  dirty.mark("test");
  await dirty.wait({ atMostMs: 1 });
  dirty.mark("test"); // while the waiter works
  await dirty.wait({ atMostMs: 1e9 });
});

test("Semaphore: never more holders than permits, waiters in order, aborted ones skipped", async () => {
  await fc.assert(
    fc.asyncProperty(
      fc.integer({ min: 1, max: 4 }),
      fc.array(fc.boolean(), { minLength: 1, maxLength: 20 }),
      async (permits, aborts) => {
        const semaphore = new Semaphore(permits);
        const order: number[] = [];
        const gates = aborts.map(() => new Deferred());
        let holding = 0;
        let most = 0;
        const stops = aborts.map(() => new AbortController());
        const runs = aborts.map((_, at) =>
          semaphore.run(
            async () => {
              order.push(at);
              holding += 1;
              most = Math.max(most, holding);
              await gates[at]?.promise;
              holding -= 1;
            },
            { signal: stops[at]?.signal },
          ),
        );
        const ends = Promise.allSettled(runs);
        for (const [at, abort] of aborts.entries()) if (abort && at >= permits) stops[at]?.abort(new Error("gave up"));
        for (const gate of gates) {
          gate.resolve();
          await new Promise((resolve) => setImmediate(resolve));
        }
        const results = await ends;
        const expected = aborts.flatMap((abort, at) => (abort && at >= permits ? [] : [at]));
        assert.deepEqual(order, expected);
        assert.ok(most <= permits);
        for (const [at, { status }] of results.entries()) assert.equal(status === "fulfilled", expected.includes(at));
        assert.ok(semaphore.isIdle(permits));
      },
    ),
    { numRuns: 30 },
  );
});

test("Semaphore: a failure gives its permit back", async () => {
  const semaphore = new Semaphore(1);
  await assert.rejects(
    semaphore.run(async () => {
      throw new Error("work failed");
    }),
    { message: "work failed" },
  );
  assert.equal(await semaphore.run(async () => 7), 7);
  assert.equal(semaphore.waiting, 0);
});

test("KeyedMutex: one holder a key, keys in parallel, no memory for keys without a holder", async () => {
  const mutex = new KeyedMutex();
  const gate = new Deferred();
  const order: string[] = [];
  const first = mutex.run("a", async () => {
    order.push("a1");
    await gate.promise;
  });
  const second = mutex.run("a", async () => void order.push("a2"));
  await mutex.run("b", async () => void order.push("b"));
  assert.deepEqual(order, ["a1", "b"]);
  assert.equal(mutex.size, 1);
  gate.resolve();
  await Promise.all([first, second]);
  assert.deepEqual(order, ["a1", "b", "a2"]);
  assert.equal(mutex.size, 0);
});

test("KeyedMutex: a waiter that aborts does not run, and the key stays usable", async () => {
  const mutex = new KeyedMutex();
  const gate = new Deferred();
  const holder = mutex.run("a", () => gate.promise);
  const stop = new AbortController();
  const waiter = mutex.run("a", async () => assert.fail("ran"), { signal: stop.signal });
  stop.abort(new Error("gave up"));
  await assert.rejects(waiter, { message: "gave up" });
  gate.resolve();
  await holder;
  assert.equal(await mutex.run("a", async () => 1), 1);
  assert.equal(mutex.size, 0);
});

test("KeyedMutex: a waiter that aborts as the holder ends does not free the key for two at once", async () => {
  for (let turns = 0; turns < 6; turns += 1) {
    const mutex = new KeyedMutex();
    const stop = new AbortController();
    const end = new Deferred<void>();
    let holders = 0;
    const hold = async (): Promise<void> => {
      holders += 1;
      assert.equal(holders, 1, `the abort comes ${turns} turns later`);
      await new Promise((resolve) => setImmediate(resolve));
      holders -= 1;
    };
    // The caller of the holder goes on with the same key.
    const first = mutex.run("a", () => end.promise).then(() => mutex.run("a", hold));
    const waiter = mutex.run("a", hold, { signal: stop.signal }).catch(() => undefined);
    end.resolve();
    for (let turn = 0; turn < turns; turn += 1) await undefined;
    stop.abort();
    await waiter;
    await Promise.all([first, mutex.run("a", hold)]);
    assert.equal(mutex.size, 0);
  }
});

test("TaskGroup: the first failure aborts the rest, and wait rejects with it after all have ended", async () => {
  const group = new TaskGroup();
  const clock = new FakeClock();
  let ended = false;
  group.spawn(async (signal) => {
    await sleep(1e6, { clock, signal }).finally(() => {
      ended = true;
    });
  });
  group.spawn(async () => {
    throw new Error("first");
  });
  await assert.rejects(group.wait(), { message: "first" });
  assert.ok(ended);
  assert.ok(group.signal.aborted);
});

test("TaskGroup: an abort from outside is a clean end; a failure while ending is reported", async () => {
  const parent = new AbortController();
  const clean = new TaskGroup(parent.signal);
  clean.spawn((signal) => sleep(1e6, { clock: new FakeClock(), signal }));
  const broken = new TaskGroup(parent.signal);
  broken.spawn(async (signal) => {
    await sleep(1e6, { clock: new FakeClock(), signal }).catch(() => {
      throw new Error("could not clean up");
    });
  });
  parent.abort();
  await clean.wait();
  await assert.rejects(broken.wait(), { message: "could not clean up" });
});

test("TaskGroup: tasks may spawn tasks, and wait ends after them", async () => {
  const group = new TaskGroup();
  const gate = new Deferred();
  let ended = false;
  group.spawn(async () => {
    group.spawn(async () => {
      await gate.promise;
      ended = true;
    });
  });
  const done = group.wait();
  assert.equal(await isSettled(done), false);
  gate.resolve();
  await done;
  assert.ok(ended);
});

test("TaskGroup: fail ends the group as a failing task does, and the first failure counts", async () => {
  const group = new TaskGroup();
  group.spawn((signal) => sleep(1e6, { clock: new FakeClock(), signal }));
  group.fail(new Error("in a callback"));
  group.fail(new Error("later"));
  await assert.rejects(group.wait(), { message: "in a callback" });
});
