import assert from "node:assert/strict";
import { test } from "node:test";
import { FakeClock } from "#base/clock";
import { EVENT_PAUSE_MS, EventLimit, MAX_REMEMBERED_KEYS, startingEvent } from "./events.ts";

test("EventLimit: one for each key in ten minutes", async () => {
  const clock = new FakeClock();
  const limit = new EventLimit(clock);
  assert.deepEqual([limit.take("a"), limit.take("a"), limit.take("b")], [true, false, true]);
  await clock.advance(EVENT_PAUSE_MS - 1);
  assert.equal(limit.take("a"), false);
  await clock.advance(1);
  assert.deepEqual([limit.take("a"), limit.take("a")], [true, false]);
});

test("EventLimit: beyond its bound the oldest key is dropped", () => {
  const limit = new EventLimit(new FakeClock());
  for (let key = 0; key <= MAX_REMEMBERED_KEYS; key += 1) assert.equal(limit.take(`service ${key}`), true);
  assert.equal(limit.take("service 1"), false);
  assert.equal(limit.take("service 0"), true);
});

test("startingEvent: a normal one about the Node", () => {
  const { about, type, reason } = startingEvent();
  assert.deepEqual([about, type, reason], ["node", "Normal", "Starting"]);
});
