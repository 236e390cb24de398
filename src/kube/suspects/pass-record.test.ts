import assert from "node:assert/strict";
import { mkdtempSync, readdirSync, readFileSync, rmSync, statSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { type TestContext, test } from "node:test";
import { FakeClock } from "#base/clock";
import { FileError } from "#base/file";
import { type Logger, nullLogger } from "#base/log";
import { describeAside, PassRecord } from "./index.ts";
import { SLOTS } from "./slots.ts";

const key = (name: string) => ({ controller: "egress", key: `team/${name}` });

/** A folder and a clock that processes have one after the other. Each `start` is a process; without `close` it was killed. */
function machine(t: TestContext) {
  const folder = join(mkdtempSync(join(tmpdir(), "isthmus-passes-")), "record");
  t.after(() => rmSync(join(folder, ".."), { recursive: true }));
  const clock = new FakeClock();
  const warnings: string[] = [];
  const log: Logger = {
    ...nullLogger,
    warn: (message, fields) => warnings.push(`${message} ${fields?.["key"] ?? fields?.["fault"] ?? fields?.["error"]}`),
  };
  const start = (boot = "first") => new PassRecord({ folder, boot, log, clock });
  return { folder, clock, warnings, start };
}

test("passes: the third process that was killed during an object's pass sets it aside, and nothing else; a change of the object frees it", async (t) => {
  const { start, warnings, clock, folder } = machine(t);
  for (let at = 0; at < 3; at += 1) {
    const record = start();
    assert.equal(record.hold(key("poison"), "1"), undefined);
    record.begin(key("poison"), "1");
    await clock.advance(1000);
  }
  const record = start();
  const held = record.hold(key("poison"), "1");
  assert.equal(held?.waitMs, 60_000);
  assert.deepEqual(
    record.aside.map((one) => one.key),
    ["team/poison"],
  );
  assert.equal(record.hold(key("other"), "1"), undefined);
  assert.equal(record.hold(key("poison"), "2"), undefined);
  record.begin(key("poison"), "2").end();
  await clock.advance(50);
  assert.deepEqual(record.aside, []);
  assert.equal(record.hold(key("poison"), "2"), undefined);
  record.close({ isFault: false });
  assert.equal(start().hold(key("poison"), "1"), undefined);
  assert.deepEqual(warnings, Array(3).fill("an earlier process ended while this was reconciled team/poison"));
  for (const file of readdirSync(folder)) assert.equal(statSync(join(folder, file)).mode & 0o777, 0o600);
});

test("passes: an end that was asked for, and a stop of the machine, are no faults", async (t) => {
  const { start, warnings } = machine(t);
  for (let at = 0; at < 3; at += 1) {
    const record = start();
    record.begin(key("slow"), "1");
    record.close({ isFault: false });
    // After its close nothing is recorded.
    record.begin(key("late"), "1").end();
  }
  for (let at = 0; at < 3; at += 1) start(`boot ${at}`).begin(key("slow"), "1");
  assert.equal(start().hold(key("slow"), "1"), undefined);
  assert.deepEqual(warnings, []);
});

test("passes: one that has ended is no cause of an end soon after, unless it took so long that a Lease may have been lost meanwhile", async (t) => {
  const { start, clock, warnings } = machine(t);
  const first = start();
  first.begin(key("quick"), "1").end();
  await clock.advance(50);
  const long = first.begin(key("long"), "1");
  await clock.advance(15_000);
  long.end();
  await clock.advance(4000);
  first.close({ isFault: true });
  const second = start();
  assert.deepEqual(warnings, ["an earlier process ended while this was reconciled team/long"]);
  second.begin(key("long"), "1").end();
  await clock.advance(50);
  assert.equal(clock.pending, 0);
});

test("passes: suspects have their passes one after the other, so that the innocent ones are cleared", async (t) => {
  const { start, clock, warnings } = machine(t);
  const first = start();
  for (const name of ["a", "poison", "b"]) first.begin(key(name), "1");
  const second = start();
  const a = second.begin(key("a"), "1");
  await clock.advance(4999);
  assert.deepEqual(second.hold(key("b"), "1"), { waitMs: 100 });
  assert.equal(second.hold(key("new"), "1"), undefined);
  await clock.advance(1);
  assert.equal(second.hold(key("b"), "1"), undefined, "a pass that waits keeps the others waiting for 5 s");
  a.end();
  await clock.advance(5000);
  second.begin(key("b"), "1").end();
  await clock.advance(50);
  second.begin(key("new"), "1");
  second.begin(key("poison"), "1");
  warnings.length = 0;
  const third = start();
  assert.equal(third.hold(key("new"), "1"), undefined);
  third.begin(key("new"), "1");
  third.begin(key("poison"), "1");
  const fourth = start();
  assert.deepEqual(
    fourth.aside.map((one) => one.key),
    ["team/poison"],
  );
});

test("passes: more than there are places are not recorded, and none is refused", async (t) => {
  const { start, clock } = machine(t);
  const record = start();
  const begun = Array.from({ length: 2 * SLOTS }, (_, at) => record.begin(key(`${at}`), "1"));
  for (const pass of begun) pass.end();
  await clock.advance(50);
  assert.equal(clock.pending, 0);
  record.begin({ controller: "egress", key: "x".repeat(2000) }, "1").end();
  record.begin(key("last"), "1");
  assert.deepEqual(start().hold(key("last"), "1"), undefined);
});

test("passes: files that are cut, changed or random end nothing and hold nothing", async (t) => {
  const { start, folder, warnings } = machine(t);
  const record = start();
  for (const name of ["a", "b"]) record.begin(key(name), "1");
  const good = readFileSync(join(folder, "under-way"));
  let seed = 7;
  const random = (): number => {
    seed = (seed * 1_103_515_245 + 12_345) % 2 ** 31;
    return seed;
  };
  for (let at = 0; at < 300; at += 1) {
    const bytes = Buffer.from(good.subarray(0, random() % (good.length + 1)));
    for (let change = 0; change < 4 && bytes.length > 0; change += 1) bytes[random() % bytes.length] = random() % 256;
    for (const file of ["under-way", "suspects.json"]) writeFileSync(join(folder, file), bytes);
    const opened = start();
    opened.hold(key("a"), "1");
    opened.close({ isFault: false });
  }
  for (const text of ['{"suspects":[{"controller":"egress","key":"team/a","ends":[{}]}]}', "[]", "\0"]) {
    writeFileSync(join(folder, "suspects.json"), text);
    warnings.length = 0;
    assert.equal(start().hold(key("a"), "1"), undefined);
    assert.match(warnings[0] ?? "", /^what earlier processes have left cannot be read/);
  }
});

test("passes: a folder that cannot be written is one line, and passes go on", async (t) => {
  const { folder, warnings, start } = machine(t);
  // A file in the place of the folder fails for root too.
  writeFileSync(folder, "");
  const record = start();
  assert.equal(record.hold(key("a"), "1"), undefined);
  record.begin(key("a"), "1").end();
  record.close({ isFault: true });
  assert.equal(warnings.length, 1);
  assert.match(warnings[0] ?? "", /^passes that are under way cannot be recorded; .* EEXIST/);
});

/** A process that is killed during a step with this object. */
function killedIn(start: () => PassRecord, name: string, version = "1"): void {
  const record = start();
  record.begin(key("pass"), "1");
  record.step(
    key("before"),
    () => "1",
    () => undefined,
  );
  record.step(
    key(name),
    () => version,
    () => record.close({ isFault: true }),
  );
}
const done = { value: "done" };
const work = (): string => "done";

test("passes: the third process that was killed during a step with an object sets it aside; passes and steps beside it are no causes, and a change frees it", async (t) => {
  const { start, warnings, clock } = machine(t);
  for (let at = 0; at < 3; at += 1) killedIn(start, "poison");
  const record = start();
  const one = record.step(key("poison"), () => "1", work);
  assert.equal("value" in one ? undefined : one.waitMs, 60_000);
  assert.deepEqual(
    record.step(key("before"), () => "1", work),
    done,
  );
  assert.equal(record.hold(key("pass"), "1"), undefined);
  assert.deepEqual(warnings, Array(3).fill("an earlier process ended while this was reconciled team/poison"));
  // The first of two steps with it does not clear it.
  assert.deepEqual(
    record.step(key("poison"), () => "2", work, { isLast: false }),
    done,
  );
  assert.equal(record.aside.length, 1);
  assert.deepEqual(
    record.step(key("poison"), () => "2", work),
    done,
  );
  assert.equal(record.aside.length, 0);
  await clock.advance(1000);
  record.close({ isFault: true });
  warnings.length = 0;
  start();
  assert.deepEqual(warnings, [], "a step that has ended is no cause");
});

test("passes: an object whose work has several steps is blamed for an end during any of them, and cleared when all have ended well", (t) => {
  const { start } = machine(t);
  const [step, more] = [{ isLast: false }, { isLast: false, isThrown: true }];
  const endDuringSecond = (version: string): void => {
    const record = start();
    record.step(
      key("poison"),
      () => version,
      () => "planned",
      step,
    );
    // What a kill leaves: the second step is under way.
    record.step(
      key("poison"),
      () => version,
      () => record.close({ isFault: true }),
      more,
    );
  };
  const isAside = (record: PassRecord): boolean =>
    "aside" in
    record.step(
      key("poison"),
      () => "1",
      () => "planned",
      step,
    );
  for (let at = 0; at < 2; at += 1) endDuringSecond("1");
  const healthy = start();
  assert.ok(!isAside(healthy));
  healthy.endedWell(key("poison"), () => "1");
  healthy.close({ isFault: false });
  for (let at = 0; at < 2; at += 1) endDuringSecond("1");
  assert.ok(!isAside(start()), "two ends since it was cleared");
  endDuringSecond("1");
  const last = start();
  assert.ok(isAside(last));
  last.endedWell(key("poison"), () => "1");
  assert.ok(isAside(last), "a version that is set aside has not ended well");
});

test("passes: a step that throws what no caller expects sets its object aside at once, and others go on; an expected error is the caller's", async (t) => {
  const { start } = machine(t);
  const record = start();
  const fault = new TypeError("x is not a function");
  const broken = (): never => {
    throw fault;
  };
  const one = record.step(key("poison"), () => "1", broken);
  assert.ok(!("value" in one));
  assert.deepEqual([one.waitMs, one.fault, one.aside.fault], [60_000, fault, "x is not a function"]);
  const again = record.step(key("poison"), () => "1", work);
  assert.equal("value" in again ? again : again.aside.fault, "x is not a function");
  assert.match(describeAside(one.aside), /a fault of the program was met in this object \(x is not a function\)/);
  assert.deepEqual(
    record.step(key("other"), () => "1", work),
    done,
  );
  const expected = new FileError("unreadable", "x");
  const refused = (): never => {
    throw expected;
  };
  assert.throws(() => record.step(key("other"), () => "1", refused), expected);
  assert.equal(start().aside.length, 1, "the next process knows it");
});

test("passes: a step whose error is passed on is the cause of an end soon after", async (t) => {
  const { start, warnings, clock } = machine(t);
  const broken = (): never => {
    throw new TypeError("x");
  };
  const first = start();
  assert.throws(() => first.step(key("poison"), () => "1", broken, { isThrown: true }), TypeError);
  await Promise.resolve();
  first.close({ isFault: true });
  const second = start();
  assert.deepEqual(warnings, ["an earlier process ended while this was reconciled team/poison"]);
  assert.throws(() => second.step(key("poison"), () => "1", broken, { isThrown: true }), TypeError);
  await clock.advance(50);
  second.close({ isFault: true });
  warnings.length = 0;
  start();
  assert.deepEqual(warnings, []);
});
