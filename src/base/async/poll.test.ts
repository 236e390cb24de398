import assert from "node:assert/strict";
import { test } from "node:test";
import { FakeClock } from "#base/clock";
import { poll } from "./poll.ts";

/** Reads 1, 2, 3 and so on, with the time. */
function counter(clock: FakeClock) {
  const at: number[] = [];
  return { at, look: () => at.push(clock.monotonic()) };
}

test("poll: reads at once, then at intervals until the value ends the wait", async () => {
  const clock = new FakeClock();
  const { at, look } = counter(clock);
  const seen = poll(look, { until: (n) => n === 4, everyMs: 20, clock });
  await clock.advance(1000);
  assert.equal(await seen, 4);
  assert.deepEqual(at, [0, 20, 40, 60]);
  assert.equal(await poll(look, { until: () => true, everyMs: 20, clock }), 5);
});

test("poll: after the deadline it resolves with the last value", async () => {
  const clock = new FakeClock();
  const { at, look } = counter(clock);
  const seen = poll(look, { until: () => false, everyMs: 20, deadlineMs: 50, clock });
  await clock.advance(1000);
  assert.equal(await seen, 4);
  assert.deepEqual(at, [0, 20, 40, 60]);
  assert.equal(await poll(look, { until: () => false, everyMs: 20, deadlineMs: 0, clock }), 5);
});

test("poll: an abort ends the wait; it rejects if the read fails", async () => {
  const clock = new FakeClock();
  const { look } = counter(clock);
  const stop = new AbortController();
  const seen = poll(look, { until: () => false, everyMs: 20, clock, signal: stop.signal });
  await clock.advance(30);
  stop.abort(new Error("enough"));
  await assert.rejects(seen, /enough/);
  assert.equal(clock.pending, 0);
  await assert.rejects(poll(look, { until: () => true, everyMs: 20, clock, signal: stop.signal }), /enough/);
  const blind = (): never => {
    throw new Error("blind");
  };
  await assert.rejects(poll(blind, { until: () => true, everyMs: 20, clock }), /blind/);
});
