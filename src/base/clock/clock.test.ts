import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "fast-check";
import { FakeClock, systemClock } from "./index.ts";

test("FakeClock: timers fire in order of their time, then of their making, at their time", async () => {
  await fc.assert(
    fc.asyncProperty(fc.array(fc.nat(50), { maxLength: 20 }), async (delays) => {
      const clock = new FakeClock();
      const fired: [number, number][] = [];
      for (const [at, delay] of delays.entries()) clock.after(delay, () => fired.push([clock.monotonic(), at]));
      await clock.advance(50);
      const expected = delays
        .map((delay, at): [number, number] => [delay, at])
        .sort((a, b) => a[0] - b[0] || a[1] - b[1]);
      assert.deepEqual(fired, expected);
      assert.equal(clock.monotonic(), 50);
    }),
    { numRuns: 20 },
  );
});

test("FakeClock: cancelled timers stay silent, and the wall clock may jump alone", async () => {
  const clock = new FakeClock(1000);
  clock.after(5, () => assert.fail("fired"))();
  await clock.advance(10);
  assert.equal(clock.now(), 1010);
  clock.jumpWall(-500);
  assert.deepEqual([clock.now(), clock.monotonic(), clock.pending], [510, 10, 0]);
});

test("systemClock: a delay above 2^31 ms does not fire at once", async () => {
  const cancel = systemClock.after(2 ** 40, () => assert.fail("fired"), { unref: true });
  await new Promise<void>((resolve) => systemClock.after(1, resolve));
  cancel();
  assert.ok(systemClock.monotonic() > 0);
});
