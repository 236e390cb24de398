import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "fast-check";
import { FakeClock } from "#base/clock";
import { TokenBucket } from "./index.ts";

test("token bucket: burst at once, then the rate; saved up to the burst only", async () => {
  const clock = new FakeClock();
  const bucket = new TokenBucket({ ratePerSecond: 10, burst: 2, clock });
  assert.deepEqual([bucket.reserve(), bucket.reserve(), bucket.reserve(), bucket.reserve()], [0, 0, 100, 200]);
  await clock.advance(10_000);
  assert.deepEqual([bucket.reserve(), bucket.reserve(), bucket.reserve()], [0, 0, 100]);
  assert.throws(() => new TokenBucket({ ratePerSecond: 0, burst: 1 }), RangeError);
});

test("token bucket: an aborted take gives its token back", async () => {
  const clock = new FakeClock();
  const bucket = new TokenBucket({ ratePerSecond: 1, burst: 1, clock });
  await bucket.take();
  const stop = new AbortController();
  const waiting = bucket.take({ signal: stop.signal });
  stop.abort(new Error("enough"));
  await assert.rejects(waiting, /enough/);
  assert.equal(bucket.reserve(), 1000);
});

test("token bucket: tryTake fails once the bucket is empty, and uses no later token", async () => {
  const clock = new FakeClock();
  const bucket = new TokenBucket({ ratePerSecond: 1, burst: 2, clock });
  assert.deepEqual(
    [bucket.tryTake(), bucket.tryTake(), bucket.tryTake(), bucket.tryTake()],
    [true, true, false, false],
  );
  await clock.advance(1000);
  assert.deepEqual([bucket.tryTake(), bucket.tryTake()], [true, false]);
});

test("token bucket: never more than burst + rate x time pass, for any calls", async () => {
  const step = fc.record({ waitMs: fc.nat(700), asks: fc.nat(5) });
  await fc.assert(
    fc.asyncProperty(fc.array(step, { maxLength: 30 }), async (steps) => {
      const clock = new FakeClock();
      const bucket = new TokenBucket({ ratePerSecond: 3, burst: 4, clock });
      let taken = 0;
      let elapsedMs = 0;
      for (const { waitMs, asks } of steps) {
        await clock.advance(waitMs);
        elapsedMs += waitMs;
        for (let ask = 0; ask < asks; ask += 1) if (bucket.tryTake()) taken += 1;
        assert.ok(taken <= 4 + (3 * elapsedMs) / 1000 + 1e-6, `${taken} in ${elapsedMs} ms`);
      }
    }),
    { numRuns: 50 },
  );
});
