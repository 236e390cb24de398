import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "fast-check";
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
  const reader = (name: string, bytes: number): Holder => {
    budget.addUnread(bytes);
    return {
      evict: () => {
        ended.push(name);
        budget.removeUnread(bytes);
      },
    };
  };
  return { clock, budget, ended, holder, reader };
}

test("BufferBudget: below the limit nobody ends; above it the reader that has stood still for longest", async () => {
  const { clock, budget, ended, reader } = budgetOf();
  budget.unread(reader("old", 40));
  await clock.advance(10);
  budget.unread(reader("young", 40));
  await clock.advance(100 * GRACE_MS);
  assert.deepEqual(ended, []);
  budget.unread(reader("new", 40));
  await clock.advance(1);
  assert.deepEqual([ended, budget.used, clock.pending], [["old"], 80, 0]);
});

test("BufferBudget: a stream is paused for at most the grace, also by readers that take a little now and then", async () => {
  const { clock, budget, ended, reader } = budgetOf();
  const readers = ["a", "b", "c"].map((name) => reader(name, 40));
  const entries: Entry[] = readers.map((one) => budget.unread(one));
  assert.equal(budget.mustPauseStreams, true);
  let resumedAt: number | undefined;
  const onBelowLimit = (): void => {
    resumedAt = clock.monotonic();
  };
  budget.whenStreamsMayBeRead({ onBelowLimit });
  for (let at = 0; resumedAt === undefined && at < 20; at += 1) {
    await clock.advance(300);
    const one = readers[at % 3];
    if (ended.length > 0 || one === undefined) continue;
    entries[at % 3]?.remove();
    entries[at % 3] = budget.unread(one);
  }
  assert.deepEqual([resumedAt, ended], [GRACE_MS, ["a"]]);
});

test("BufferBudget: no stream is paused, or waits on, where too few bytes wait for a reader to matter", async () => {
  const { clock, budget, ended, holder, reader } = budgetOf();
  budget.blocked(holder("half a message", 120));
  assert.deepEqual([budget.isOver, budget.mustPauseStreams], [true, false]);
  const entry = budget.unread(reader("reader", 12));
  assert.equal(budget.mustPauseStreams, false);
  budget.addUnread(1);
  assert.equal(budget.mustPauseStreams, true);
  let resumed = 0;
  const onBelowLimit = (): void => {
    resumed += 1;
  };
  budget.whenStreamsMayBeRead({ onBelowLimit });
  budget.removeUnread(6);
  assert.deepEqual([budget.mustPauseStreams, resumed], [true, 0]);
  budget.removeUnread(1);
  assert.deepEqual([budget.mustPauseStreams, resumed], [false, 1]);
  budget.addUnread(10);
  budget.whenStreamsMayBeRead({ onBelowLimit });
  // Less than 16 KiB of a connection are left.
  entry.remove();
  assert.equal(resumed, 2);
  await clock.advance(GRACE_MS);
  assert.deepEqual([ended, budget.used, clock.pending], [["half a message"], 16, 0]);
});

test("BufferBudget: those that wait for their peer have the whole grace, beside the time in which streams were not read", async () => {
  const { clock, budget, ended, holder, reader } = budgetOf();
  budget.blocked(holder("upload", 120));
  await clock.advance(GRACE_MS / 10);
  budget.unread(reader("reader", 20));
  let resumed = 0;
  budget.whenStreamsMayBeRead({
    onBelowLimit: () => {
      resumed += 1;
    },
  });
  await clock.advance(GRACE_MS);
  assert.deepEqual([ended, resumed], [["reader"], 1], "credit for the upload may have come meanwhile");
  await clock.advance(GRACE_MS * 0.9 - 1);
  assert.deepEqual(ended, ["reader"]);
  await clock.advance(1);
  assert.deepEqual([ended, budget.used, clock.pending], [["reader", "upload"], 0, 0]);
});

for (const [many, bytes] of [
  ["few", 5],
  ["many", 50],
] as const) {
  test(`BufferBudget: readers that take ${many} bytes as they come do not keep what waits for its peer above the limit`, async () => {
    const { clock, budget, ended, holder } = budgetOf();
    budget.blocked(holder("upload", 120));
    const download = holder("download", 0);
    for (let at = 0; at < 10 && ended.length === 0; at += 1) {
      // A read of a link comes, streams may be paused, and the reader takes it.
      budget.addUnread(bytes);
      const entry = budget.unread(download);
      if (budget.mustPauseStreams) budget.whenStreamsMayBeRead({ onBelowLimit: () => undefined });
      await clock.advance(GRACE_MS / 4);
      budget.removeUnread(bytes);
      entry.remove();
      await clock.advance(GRACE_MS / 4);
    }
    assert.deepEqual([ended, budget.used, clock.pending], [["upload"], 0, 0]);
  });
}

test("BufferBudget: a stream that has ended while it was paused makes the next pause no older", async () => {
  const { clock, budget, ended, reader } = budgetOf();
  const first = budget.unread(reader("first", 60));
  budget.addUnread(60);
  const gone = { onBelowLimit: () => undefined };
  budget.whenStreamsMayBeRead(gone);
  await clock.advance(GRACE_MS * 0.9);
  budget.forget(gone);
  budget.unread(reader("second", 60));
  first.remove();
  budget.whenStreamsMayBeRead({ onBelowLimit: () => undefined });
  await clock.advance(GRACE_MS * 0.9);
  assert.deepEqual(ended, []);
  await clock.advance(GRACE_MS * 0.1);
  assert.deepEqual(ended, ["second"]);
});

const step = fc.oneof(
  fc.record({ op: fc.constantFrom("unread" as const, "blocked" as const), bytes: fc.integer({ min: 1, max: 90 }) }),
  fc.record({ op: fc.constantFrom("progress" as const, "leave" as const), at: fc.nat(20) }),
  fc.record({ op: fc.constant("pause" as const) }),
  fc.record({ op: fc.constant("wait" as const), ms: fc.constantFrom(1, 100, GRACE_MS / 2, GRACE_MS) }),
);

test("BufferBudget: whatever readers and peers do, once they stand still the limit is kept within two graces, and streams are read", async () => {
  await fc.assert(
    fc.asyncProperty(fc.array(step, { maxLength: 40 }), async (steps) => {
      const clock = new FakeClock();
      const budget = new BufferBudget(LIMIT, { clock, graceMs: GRACE_MS });
      interface Held {
        readonly kind: "unread" | "blocked";
        readonly bytes: number;
        entry: Entry | undefined;
      }
      const held: Held[] = [];
      const drop = (one: Held): void => {
        held.splice(held.indexOf(one), 1);
        if (one.kind === "unread") budget.removeUnread(one.bytes);
        else budget.remove(one.bytes);
      };
      let paused = 0;
      const stand = (one: Held): void => {
        one.entry = budget[one.kind]({ evict: () => drop(one) });
      };
      for (const one of steps) {
        if (one.op === "wait") await clock.advance(one.ms);
        else if (one.op === "pause") {
          if (!budget.mustPauseStreams) continue;
          paused += 1;
          budget.whenStreamsMayBeRead({
            onBelowLimit: () => {
              paused -= 1;
              assert.equal(budget.mustPauseStreams, false);
            },
          });
        } else if ("bytes" in one) {
          const made: Held = { kind: one.op, bytes: one.bytes, entry: undefined };
          held.push(made);
          if (one.op === "unread") budget.addUnread(one.bytes);
          else budget.add(one.bytes);
          stand(made);
        } else {
          const which = held[one.at];
          if (which === undefined) continue;
          which.entry?.remove();
          if (one.op === "leave") drop(which);
          else stand(which);
        }
      }
      await clock.advance(2 * GRACE_MS);
      assert.deepEqual([budget.isOver, paused, clock.pending], [false, 0, 0]);
      assert.equal(
        budget.used,
        held.reduce((sum, { bytes }) => sum + bytes, 0),
      );
    }),
    { numRuns: 2000 },
  );
});
