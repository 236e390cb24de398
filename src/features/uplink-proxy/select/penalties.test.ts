import assert from "node:assert/strict";
import { test } from "node:test";
import { FakeClock } from "#base/clock";
import { Penalties, type PenaltyEvent } from "./index.ts";

const OPTIONS = { penaltyMs: 30_000, penaltyMaxMs: 600_000, penaltyEntries: 3 };
const D = "a.example:443";

test("Penalties: 30 s, doubling to 10 min, cleared by a byte", async () => {
  const clock = new FakeClock();
  const penalties = new Penalties(clock, OPTIONS);
  const lengths: number[] = [];
  for (let strike = 0; strike < 7; strike += 1) {
    penalties.add(D, "eth0");
    const [penalty] = penalties.list();
    const lengthMs = (penalty?.until ?? 0) - clock.monotonic();
    lengths.push(lengthMs / 1000);
    assert.equal(penalties.stateOf(D, "eth0"), "penalised");
    await clock.advance(lengthMs);
    assert.equal(penalties.stateOf(D, "eth0"), "probation");
  }
  assert.deepEqual(lengths, [30, 60, 120, 240, 480, 600, 600]);
  penalties.clear(D, "eth0");
  assert.equal(penalties.stateOf(D, "eth0"), "good");
  penalties.add(D, "eth0", "stall");
  assert.equal((penalties.list()[0]?.until ?? 0) - clock.monotonic(), 15_000);
});

test("Penalties: many failures at once are one; another destination or uplink has its own", () => {
  const penalties = new Penalties(new FakeClock(), OPTIONS);
  penalties.add(D, "eth0");
  penalties.add(D, "eth0");
  assert.equal(penalties.list()[0]?.until, 30_000);
  assert.equal(penalties.stateOf("b.example:443", "eth0"), "good");
  assert.equal(penalties.stateOf(D, "eth1"), "good");
});

test("Penalties: a connection made after the penalty ends the suspicion, but the next failure is twice as long", async () => {
  const clock = new FakeClock();
  const penalties = new Penalties(clock, OPTIONS);
  penalties.add(D, "eth0");
  await clock.advance(30_000);
  penalties.confirm(D, "eth0");
  assert.equal(penalties.stateOf(D, "eth0"), "good");
  penalties.add(D, "eth0");
  assert.equal((penalties.list()[0]?.until ?? 0) - clock.monotonic(), 60_000);
});

test("Penalties: the third race that is lost in a row is penalised, in whichever thread; a connection ends the row", async () => {
  const clock = new FakeClock();
  const [one, two] = [new Penalties(clock, OPTIONS), new Penalties(clock, OPTIONS)];
  one.onEvent = (event) => two.apply(event);
  two.onEvent = (event) => one.apply(event);
  one.lost(D, "eth0");
  two.lost(D, "eth0");
  two.confirm(D, "eth0");
  for (const penalties of [one, two]) penalties.lost(D, "eth0");
  assert.deepEqual([one.stateOf(D, "eth0"), two.stateOf(D, "eth0")], ["good", "good"]);
  two.lost(D, "eth0");
  assert.deepEqual([one.stateOf(D, "eth0"), two.stateOf(D, "eth0")], ["penalised", "penalised"]);
  await clock.advance(30_000);
  one.lost(D, "eth0");
  assert.equal((two.list()[0]?.until ?? 0) - clock.monotonic(), 60_000);
  // Only so many pairs are remembered.
  for (const other of ["b", "c", "d"]) one.lost(`${other}.example:443`, "eth0");
  await clock.advance(60_000);
  one.lost(D, "eth0");
  assert.equal(one.stateOf(D, "eth0"), "probation");
});

test("Penalties: a clock that jumps changes no length; the oldest pair is dropped first", async () => {
  const clock = new FakeClock();
  const penalties = new Penalties(clock, OPTIONS);
  for (const at of [1, 2, 3, 4]) penalties.add(`d${at}:443`, "eth0");
  assert.deepEqual(
    penalties.list().map(({ destination }) => destination),
    ["d2:443", "d3:443", "d4:443"],
  );
  clock.jumpWall(-3_600_000);
  assert.equal(penalties.stateOf("d4:443", "eth0"), "penalised");
  await clock.advance(30_000);
  assert.equal(penalties.stateOf("d4:443", "eth0"), "probation");
});

test("Penalties: another thread applies an event, and does not send it again", async () => {
  const clock = new FakeClock();
  const [one, two] = [new Penalties(clock, OPTIONS), new Penalties(clock, OPTIONS)];
  const events: PenaltyEvent[] = [];
  one.onEvent = (event) => {
    events.push(event);
    two.apply(event);
  };
  two.onEvent = () => assert.fail("told again");
  one.add(D, "eth0", "stall");
  assert.equal(two.stateOf(D, "eth0"), "penalised");
  await clock.advance(15_000);
  one.confirm(D, "eth0");
  // It connects, but only a byte proves that it carries any.
  assert.equal(two.stateOf(D, "eth0"), "good");
  assert.equal(two.needsTrial(D, "eth0"), true);
  one.clear(D, "eth0");
  one.clear(D, "eth0");
  assert.deepEqual(
    events.map(({ kind }) => kind),
    ["add", "confirm", "clear"],
  );
  assert.deepEqual(two.list(), []);
});
