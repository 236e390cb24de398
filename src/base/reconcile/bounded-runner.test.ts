import assert from "node:assert/strict";
import { test } from "node:test";
import { FakeClock } from "#base/clock";
import { ExpectedError } from "#base/errors";
import { BoundedRunner } from "./index.ts";

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

test("BoundedRunner: a few runs follow each other at once after a rest, and on average they keep their distance", async () => {
  const clock = new FakeClock();
  const runner = new BoundedRunner({ minMs: 1000, burst: 4, maxMs: 60_000, retryMs: 30_000, clock });
  const ranAt: number[] = [];
  const stop = new AbortController();
  const work = async (): Promise<void> => {
    ranAt.push(clock.monotonic());
  };
  const running = runner.run(work, { signal: stop.signal });
  for (let ms = 0; ms < 20_000; ms += 10) {
    runner.request();
    await clock.advance(10);
  }
  const first = ranAt[0] ?? 0;
  assert.ok((ranAt[3] ?? Number.POSITIVE_INFINITY) - first <= 50, `${ranAt.slice(0, 5)}`);
  assert.ok(ranAt.length <= 24, `${ranAt.length} runs in 20 s`);
  assert.ok(ranAt.length >= 22, `${ranAt.length} runs in 20 s`);
  await clock.advance(30_000);
  const rested = ranAt.length;
  for (let at = 0; at < 3; at += 1) {
    runner.request();
    await clock.advance(5);
  }
  assert.equal(ranAt.length, rested + 3);
  stop.abort();
  await clock.advance(1);
  await running;
});

test("BoundedRunner: its pauses, retries and longest pause do not depend on the wall clock", async () => {
  const clock = new FakeClock();
  const runner = new BoundedRunner({ minMs: 1000, maxMs: 60_000, retryMs: 30_000, clock });
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
  runner.request();
  await advance(clock, 200);
  runner.request();
  await advance(clock, 10_000);
  assert.deepEqual(runs, [0, 1000], "at once, then after the shortest pause");
  failures = 2;
  runner.request();
  await advance(clock, 9800);
  assert.deepEqual(runs.slice(2), [10_200, 11_200, 12_200], "two failures, each tried again after the shortest pause");
  await advance(clock, 60_000);
  assert.deepEqual(runs.slice(5), [72_200], "nothing was asked for: after the longest pause");
  stop.abort();
  await running;
});
