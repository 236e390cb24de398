import assert from "node:assert/strict";
import { test } from "node:test";
import { Backoff, Deferred, Dirty } from "#base/async";
import { FakeClock } from "#base/clock";
import { ExpectedError } from "#base/errors";
import { Loop, type LoopOptions, type PassResult } from "./index.ts";

class SyncError extends ExpectedError<"failed"> {
  override readonly name = "SyncError";
}

const DAY_MS = 86_400_000;
const JUMPS = [-365 * DAY_MS, 3_600_000, 365 * DAY_MS] as const;

/** Advances in steps and moves the wall clock by years between them. */
async function advance(clock: FakeClock, ms: number): Promise<void> {
  const steps = 20;
  for (let step = 0; step < steps; step += 1) {
    clock.jumpWall(JUMPS[step % JUMPS.length] ?? 0);
    await clock.advance(ms / steps);
  }
}

/** A loop on a fake clock whose passes follow `script`. Returns what each pass was given, with its time. */
function loopOf(options: Partial<LoopOptions>, script: readonly ((loop: Loop) => PassResult | Error)[] = []) {
  const clock = new FakeClock();
  const failures: string[] = [];
  const onFailure = ({ message }: ExpectedError): number => failures.push(message);
  const loop = new Loop({ everyMs: 1000, clock, onFailure, ...options });
  const passes: { at: number; pass: number; reasons: string[]; revision: number }[] = [];
  const stop = new AbortController();
  const done = loop.run(
    async ({ pass, reasons, revision }) => {
      passes.push({ at: clock.monotonic(), pass, reasons: [...reasons], revision });
      const result = script[passes.length - 1]?.(loop) ?? { againMs: 1000 };
      if (result instanceof Error) throw result;
      return result;
    },
    { signal: stop.signal },
  );
  done.catch(() => undefined);
  return { clock, loop, passes, failures, stop, done, times: () => passes.map(({ at }) => at) };
}

const refuse = (): Error => new SyncError("failed", "the kernel is busy");

test("Loop: a pass gets the reasons of its wakes and the revision that it applies; wakes during it belong to the next one", async () => {
  const bed = loopOf({}, [
    (loop) => {
      loop.wake("node");
      return { againMs: 1000 };
    },
  ]);
  await bed.clock.advance(0);
  bed.loop.wake("route");
  bed.loop.wake("route");
  await bed.clock.advance(1000);
  assert.deepEqual(bed.passes, [
    { at: 0, pass: 1, reasons: [], revision: 0 },
    { at: 0, pass: 2, reasons: ["node"], revision: 1 },
    { at: 0, pass: 3, reasons: ["route"], revision: 3 },
    { at: 1000, pass: 4, reasons: [], revision: 3 },
  ]);
  assert.deepEqual(bed.loop.progress, { passes: 4, failures: 0, revision: 3, wanted: 3, reasons: [], awaits: [] });
  bed.stop.abort();
  await bed.done;
});

test("Loop: at most 16 reasons are kept between two passes, and every wake counts", async () => {
  const dirty = new Dirty(new FakeClock());
  for (let at = 0; at < 40; at += 1) dirty.mark(`reason ${at}`);
  const { reasons, revision } = dirty.take();
  assert.deepEqual([reasons.size, revision], [16, 40]);
  assert.deepEqual(dirty.take(), { reasons: new Set(), revision: 40 });
});

test("Loop: applied() resolves with the first success that began after the wake, not with a pass that was under way", async () => {
  const first = new Deferred();
  const clock = new FakeClock();
  const loop = new Loop({
    everyMs: 1000,
    clock,
    backoff: new Backoff({ initialMs: 10, maxMs: 10, jitter: 0 }),
    onFailure: () => undefined,
  });
  const stop = new AbortController();
  let passes = 0;
  const done = loop.run(
    async () => {
      passes += 1;
      if (passes === 1) await first.promise;
      if (passes === 2) throw refuse();
    },
    { signal: stop.signal },
  );
  await clock.advance(0);
  let isApplied = false;
  const applied = loop.applied(loop.wake("test")).then(() => {
    isApplied = true;
  });
  first.resolve();
  await clock.advance(0);
  assert.deepEqual([passes, isApplied, loop.progress.revision], [2, false, 0]);
  await clock.advance(10);
  await applied;
  assert.deepEqual([passes, loop.progress.revision], [3, 1]);
  await loop.applied(1);
  const gone = new AbortController();
  const late = loop.applied(loop.wake("test") + 1, { signal: gone.signal });
  gone.abort(new Error("the caller has gone"));
  await assert.rejects(late, { message: "the caller has gone" });
  stop.abort();
  await done;
});

test("Loop: no pass begins before all inputs were listed, whatever wakes it, and the progress names what is missing", async () => {
  const [pods, nodes] = [new Deferred(), new Deferred()];
  const bed = loopOf({ inputs: { pods: { synced: pods.promise }, nodes: { synced: nodes.promise } } });
  bed.loop.wake("pod");
  await bed.clock.advance(5000);
  nodes.resolve();
  await bed.clock.advance(5000);
  assert.deepEqual([bed.passes, bed.loop.progress.awaits], [[], ["pods"]]);
  pods.resolve();
  await bed.clock.advance(0);
  assert.deepEqual(bed.passes, [{ at: 10_000, pass: 1, reasons: ["pod"], revision: 1 }]);
  assert.deepEqual(bed.loop.progress.awaits, []);
  bed.stop.abort();
  await bed.done;
});

test("Loop: an abort before all inputs were listed ends it without a pass", async () => {
  const bed = loopOf({ inputs: { pods: { synced: new Deferred().promise } } });
  bed.stop.abort();
  await bed.done;
  assert.deepEqual(bed.passes, []);
});

test("Loop: a pass sets the time of the next one, and wakes gather before it", async () => {
  const bed = loopOf({ gatherMs: () => 20 }, [() => ({ againMs: 50 })]);
  await bed.clock.advance(100);
  bed.loop.wake("one");
  await bed.clock.advance(10);
  bed.loop.wake("two");
  await bed.clock.advance(10);
  assert.deepEqual(bed.times(), [0, 70, 120]);
  assert.deepEqual(bed.passes[2]?.reasons, ["one", "two"]);
  bed.stop.abort();
  await bed.done;
});

test("Loop: a wake ends the pause after a failure unless the loop keeps it", async () => {
  const backoff = (): Backoff => new Backoff({ initialMs: 100, maxMs: 100, jitter: 0 });
  for (const [keepsRetryPause, second] of [
    [false, 10],
    [true, 100],
  ] as const) {
    const bed = loopOf({ backoff: backoff(), keepsRetryPause }, [refuse]);
    await bed.clock.advance(10);
    bed.loop.wake("again");
    await bed.clock.advance(200);
    assert.deepEqual([bed.times(), bed.failures], [[0, second], ["the kernel is busy"]]);
    bed.stop.abort();
    await bed.done;
  }
});

test("Loop: without onFailure an expected failure is a bug too", async () => {
  const loop = new Loop({ everyMs: 1000, clock: new FakeClock() });
  const failing = loop.run(() => Promise.reject(refuse()), { signal: new AbortController().signal });
  await assert.rejects(failing, { message: "the kernel is busy" });
});

test("Loop: a few runs follow each other at once after a rest, and on average they keep their distance", async () => {
  const clock = new FakeClock();
  const runner = new Loop({ everyMs: 60_000, startsIdle: true, pace: { minMs: 1000, burst: 4 }, clock });
  const ranAt: number[] = [];
  const stop = new AbortController();
  const work = async (): Promise<void> => {
    ranAt.push(clock.monotonic());
  };
  const running = runner.run(work, { signal: stop.signal });
  for (let ms = 0; ms < 20_000; ms += 10) {
    runner.wake("test");
    await clock.advance(10);
  }
  const first = ranAt[0] ?? 0;
  assert.ok((ranAt[3] ?? Number.POSITIVE_INFINITY) - first <= 50, `${ranAt.slice(0, 5)}`);
  assert.ok(ranAt.length <= 24, `${ranAt.length} runs in 20 s`);
  assert.ok(ranAt.length >= 22, `${ranAt.length} runs in 20 s`);
  await clock.advance(30_000);
  const rested = ranAt.length;
  for (let at = 0; at < 3; at += 1) {
    runner.wake("test");
    await clock.advance(5);
  }
  assert.equal(ranAt.length, rested + 3);
  stop.abort();
  await clock.advance(1);
  await running;
});

test("Loop: its pauses, retries and longest pause do not depend on the wall clock", async () => {
  const clock = new FakeClock();
  const backoff = new Backoff({ firstMs: [100, 1000, 5000], initialMs: 30_000, maxMs: 30_000, jitter: 0 });
  const timing = { everyMs: 60_000, startsIdle: true, pace: { minMs: 1000 }, backoff };
  const runner = new Loop({ ...timing, onFailure: () => undefined, clock });
  const runs: number[] = [];
  let failures = 0;
  const stop = new AbortController();
  const running = runner.run(
    async () => {
      runs.push(clock.monotonic());
      failures -= 1;
      if (failures >= 0) throw new SyncError("failed", "the kernel is busy");
    },
    { signal: stop.signal },
  );
  runner.wake("test");
  await advance(clock, 200);
  runner.wake("test");
  await advance(clock, 10_000);
  assert.deepEqual(runs, [0, 1000], "at once, then after the shortest pause");
  failures = 2;
  runner.wake("test");
  await advance(clock, 9800);
  assert.deepEqual(runs.slice(2), [10_200, 11_200, 12_200], "two failures, each tried again after the shortest pause");
  await advance(clock, 60_000);
  assert.deepEqual(runs.slice(5), [72_200], "nothing was asked for: after the longest pause");
  stop.abort();
  await running;
});
