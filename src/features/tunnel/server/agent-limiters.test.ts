import assert from "node:assert/strict";
import { test } from "node:test";
import { FakeClock } from "#base/clock";
import { AgentLimiters } from "./agent-limiters.ts";

test("AgentLimiters: all streams of one agent share its places, and each place is freed once", () => {
  const all = new AgentLimiters(new FakeClock(), { maxConnections: 2, dialRate: 100 });
  const [one, two, other] = [all.open("a"), all.open("a"), all.open("b")];
  const first = one.reserve();
  assert.ok(first !== undefined);
  assert.ok(two.reserve() !== undefined);
  assert.equal(one.reserve(), undefined);
  assert.ok(other.reserve() !== undefined, "another agent has its own");
  first();
  first();
  assert.ok(two.reserve() !== undefined);
  assert.equal(two.reserve(), undefined, "given back twice counts once");
});

test("AgentLimiters: more streams give no higher rate", async () => {
  const clock = new FakeClock();
  const all = new AgentLimiters(clock, { maxConnections: 1000, dialRate: 5 });
  const streams = [all.open("a"), all.open("a"), all.open("a")];
  const count = (): number => {
    let had = 0;
    for (let at = 0; at < 100; at += 1) if (streams[at % 3]?.reserve() !== undefined) had += 1;
    return had;
  };
  assert.equal(count(), 10);
  await clock.advance(1000);
  assert.equal(count(), 5);
});

test("AgentLimiters: an agent's entry is removed with its last stream and connection", () => {
  const all = new AgentLimiters(new FakeClock(), { maxConnections: 2, dialRate: 100 });
  const [one, two] = [all.open("a"), all.open("a")];
  const release = one.reserve();
  one.close();
  one.close();
  assert.equal(all.size, 1);
  two.close();
  assert.equal(all.size, 1, "a connection of it is left");
  release?.();
  assert.equal(all.size, 0);
});
