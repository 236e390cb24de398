import assert from "node:assert/strict";
import { test } from "node:test";
import { Turns } from "./turns.ts";

const LIMITS = { most: 192, mostInLane: 96 };

/** Begins turns of a lane until one has to wait; returns how many there were. */
function fill(turns: Turns, lane: string): number {
  for (let at = 0; ; at += 1) if (!turns.begin(lane, `${lane}-${at}`)) return at;
}

test("Turns: a lane has half of the turns, and others are served one lane after the other", () => {
  const woken: string[] = [];
  const turns = new Turns((key) => woken.push(key), LIMITS);
  assert.deepEqual([fill(turns, "a"), fill(turns, "b"), fill(turns, "c")], [96, 96, 0]);
  turns.begin("a", "a-late");
  for (const lane of ["a", "b", "a", "b"]) turns.end(lane);
  // One of each lane waits, and another one of lane a.
  assert.deepEqual(woken, ["a-96", "b-96", "c-0", "a-late"]);
  assert.equal(turns.begin("c", "c-1"), false, "the turns are kept for those that were woken");
  for (const key of woken) assert.equal(turns.begin(key.slice(0, 1), key), true);
});

test("Turns: a kept turn that is not needed goes to the next, and no turn is lost", () => {
  const woken: string[] = [];
  const turns = new Turns((key) => woken.push(key), LIMITS);
  assert.equal(fill(turns, "a"), 96);
  turns.begin("a", "second");
  turns.end("a");
  assert.deepEqual(woken, ["a-96"]);
  const kept = turns.keptFor("a-96") ?? assert.fail();
  turns.drop("a-96", kept);
  assert.deepEqual(woken, ["a-96", "second"]);
  // One that is used is dropped no more, nor one that is kept later.
  const other = turns.keptFor("second") ?? assert.fail();
  assert.equal(turns.begin("a", "second"), true);
  turns.drop("second", other);
  // A key that asks in another lane waits no more in the first one.
  assert.equal(turns.begin("a", "moves"), false);
  assert.equal(turns.begin("b", "moves"), true);
  for (let at = 0; at < 96; at += 1) turns.end("a");
  turns.end("b");
  assert.deepEqual(woken, ["a-96", "second"]);
  assert.equal(fill(turns, "a"), 96);
  assert.throws(() => turns.end("none"), /lane none/);
});

test("Turns: work has its turn until it ends, also by a failure, and a turn that a pass does not use goes to the next key", async () => {
  const woken: string[] = [];
  const turns = new Turns((key) => woken.push(key), { most: 1, mostInLane: 1 });
  const first = Promise.withResolvers<void>();
  const running = turns.within("a", "one", () => first.promise);
  let runs = 0;
  const count = async (): Promise<void> => {
    runs += 1;
  };
  assert.deepEqual([await turns.within("a", "two", count), await turns.within("b", "three", count)], [false, false]);
  first.reject(new Error("the server is away"));
  await assert.rejects(running, /the server is away/);
  assert.deepEqual(woken, ["two"]);
  // The pass of the key that was woken needs no turn any more.
  assert.equal(await turns.pass("two", async () => "nothing to do"), "nothing to do");
  assert.deepEqual(woken, ["two", "three"]);
  assert.equal(await turns.pass("three", () => turns.within("b", "three", count)), true);
  assert.deepEqual([await turns.within("a", "two", count), runs], [true, 2]);
});
