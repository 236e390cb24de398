import assert from "node:assert/strict";
import { test } from "node:test";
import { FakeClock } from "#base/clock";
import { AcceptPace } from "./accept-pace.ts";

test("AcceptPace: twice the rate at once, then one after the other, and nobody waits longer than a minute", async () => {
  const clock = new FakeClock();
  const pace = new AcceptPace(clock, { perSecond: 10 });
  const turns: boolean[] = [];
  let next = 0;
  const come = (count: number): void => {
    for (let at = 0; at < count; at += 1) {
      next += 1;
      const comer = { peer: { address: `[2001:db8::${next.toString(16)}]:4000` }, isGone: false };
      void pace.turn(comer).then((isTurn) => turns.push(isTurn));
    }
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

test("AcceptPace: thousands of streams that were reset delay nobody and hold no place", async () => {
  const clock = new FakeClock();
  const pace = new AcceptPace(clock, { perSecond: 10 });
  for (let at = 0; at < 14 * 950; at += 1) {
    const comer = { peer: { address: `192.0.2.${at % 14}:${at}` }, isGone: false };
    void pace.turn(comer);
    comer.isGone = true;
    assert.ok(pace.waiting <= 14 * 4);
  }
  let turn: boolean | undefined;
  void pace.turn({ peer: { address: "198.51.100.1:1" }, isGone: false }).then((isTurn) => {
    turn = isTurn;
  });
  await clock.advance(100);
  assert.equal(turn, true);
  assert.equal(pace.waiting, 0);
});

test("AcceptPace: four streams of one address wait, further ones come again, and others are not held up by them", async () => {
  const clock = new FakeClock();
  const pace = new AcceptPace(clock, { perSecond: 10 });
  const come = (address: string) => {
    const comer = { peer: { address }, isGone: false, turn: undefined as boolean | undefined };
    void pace.turn(comer).then((isTurn) => {
      comer.turn = isTurn;
    });
    return comer;
  };
  for (let at = 0; at < 20; at += 1) come(`192.0.2.1:${at}`);
  const greedy = Array.from({ length: 6 }, (_, at) => come(`192.0.2.1:${100 + at}`));
  const other = come("192.0.2.2:1");
  await clock.advance(0);
  assert.deepEqual(
    greedy.map(({ turn }) => turn),
    [undefined, undefined, undefined, undefined, false, false],
  );
  const [first] = greedy;
  assert.ok(first !== undefined);
  first.isGone = true;
  const late = come("192.0.2.1:200");
  await clock.advance(399);
  assert.deepEqual([first.turn, other.turn, late.turn], [false, undefined, undefined]);
  await clock.advance(1);
  assert.deepEqual([other.turn, late.turn], [true, undefined], "in the order of their coming");
  await clock.advance(100);
  assert.equal(late.turn, true, "a place that was given back is used");
});
