import assert from "node:assert/strict";
import { test } from "node:test";
import { FakeClock } from "#base/clock";
import { AcceptPace } from "./accept-pace.ts";

test("AcceptPace: twice the rate at once, then one after the other, and nobody waits longer than a minute", async () => {
  const clock = new FakeClock();
  const pace = new AcceptPace(clock, { perSecond: 10 });
  const turns: boolean[] = [];
  const come = (count: number): void => {
    for (let at = 0; at < count; at += 1) void pace.turn().then((isTurn) => turns.push(isTurn));
  };
  come(25);
  await clock.advance(0);
  assert.equal(turns.length, 20);
  await clock.advance(499);
  assert.equal(turns.length, 24);
  await clock.advance(1);
  assert.deepEqual(turns, Array(25).fill(true));
  for (let again = 0; again < 3; again += 1) {
    come(700);
    await clock.advance(0);
    assert.equal(turns.length, 25 + 100, "those that would wait too long are told at once");
    assert.equal(turns.filter(Boolean).length, 25);
    await clock.advance(60_000);
    assert.equal(turns.filter(Boolean).length, 25 + 600, "and took no turn from those that wait");
    turns.splice(25);
  }
});
