import assert from "node:assert/strict";
import { test } from "node:test";
import { FakeClock } from "#base/clock";
import type { Entry } from "#base/collections";
import { BufferBudget, type Holder } from "./budget.ts";

const [LIMIT, GRACE_MS] = [100, 1000];

function budgetOf() {
  const clock = new FakeClock();
  const budget = new BufferBudget(LIMIT, { clock, graceMs: GRACE_MS });
  const ended: string[] = [];
  const holder = (name: string, bytes: number): Holder => {
    budget.add(bytes);
    return {
      evict: () => {
        ended.push(name);
        budget.remove(bytes);
      },
    };
  };
  return { clock, budget, ended, holder };
}

test("BufferBudget: below the limit nobody ends; above it the reader that has stood still for longest", async () => {
  const { clock, budget, ended, holder } = budgetOf();
  budget.unread(holder("old", 40));
  await clock.advance(10);
  budget.unread(holder("young", 40));
  await clock.advance(100 * GRACE_MS);
  assert.deepEqual(ended, []);
  budget.unread(holder("new", 40));
  await clock.advance(1);
  assert.deepEqual([ended, budget.used, clock.pending], [["old"], 80, 0]);
});

test("BufferBudget: a stream is paused for at most the grace, also by readers that take a little now and then", async () => {
  const { clock, budget, ended, holder } = budgetOf();
  const readers = ["a", "b", "c"].map((name) => holder(name, 40));
  const entries: Entry[] = readers.map((reader) => budget.unread(reader));
  assert.equal(budget.mustPauseStreams, true);
  let resumedAt: number | undefined;
  const onBelowLimit = (): void => {
    resumedAt = clock.monotonic();
  };
  budget.whenStreamsMayBeRead({ onBelowLimit });
  for (let at = 0; resumedAt === undefined && at < 20; at += 1) {
    await clock.advance(300);
    const reader = readers[at % 3];
    if (ended.length > 0 || reader === undefined) continue;
    entries[at % 3]?.remove();
    entries[at % 3] = budget.unread(reader);
  }
  assert.deepEqual([resumedAt, ended], [GRACE_MS, ["a"]]);
});

test("BufferBudget: no stream is paused, or waits on, where no byte waits for a reader", async () => {
  const { clock, budget, ended, holder } = budgetOf();
  budget.blocked(holder("half a message", 120));
  assert.deepEqual([budget.isOver, budget.mustPauseStreams], [true, false]);
  const entry = budget.unread(holder("reader", 20));
  let resumed = 0;
  const onBelowLimit = (): void => {
    resumed += 1;
  };
  budget.whenStreamsMayBeRead({ onBelowLimit });
  budget.remove(20);
  entry.remove();
  assert.equal(resumed, 1);
  await clock.advance(GRACE_MS);
  assert.deepEqual([ended, budget.used, clock.pending], [["half a message"], 0, 0]);
});
