import assert from "node:assert/strict";
import { test } from "node:test";
import { Deferred } from "#base/async";
import { DiallerBed } from "../testing/dialler-bed.ts";
import { snapshotOf, uplink } from "../testing/proxy-fixtures.ts";

const A = "192.0.2.10";
const B = "198.51.100.10";
const TARGET = "203.0.113.80:443";
const two = [uplink("eth0", { sources: [A] }), uplink("eth1", { sources: [B], cost: 1 })];

test("Dialler: when a penalty has ended the uplink is tried first, and the next one starts soon", async () => {
  const bed = new DiallerBed({ [A]: "silent", [B]: 5 });
  await bed.outcome(bed.request(snapshotOf(two)));
  await bed.clock.advance(30_000);
  bed.log.length = 0;
  let before = bed.clock.monotonic();
  assert.equal(await bed.outcome(bed.request(snapshotOf(two))), `eth1 from ${B}`);
  assert.equal(bed.log[0], `${before} ${A}`);
  assert.ok(bed.clock.monotonic() - before <= 300);
  // The attempt goes on by itself; its failure doubles the penalty.
  await bed.clock.advance(10_000);
  assert.equal(bed.open, 0);
  const [penalty] = bed.penalties.list();
  assert.ok(penalty !== undefined && penalty.until - bed.clock.monotonic() > 55_000);
  assert.deepEqual(bed.late, [`eth0 ${TARGET} timeout`]);
  // It works again, but takes longer than the head start: it is waited for from then on.
  await bed.clock.advance(60_000);
  bed.behaviours = { [A]: 700, [B]: 5 };
  assert.equal(await bed.outcome(bed.request(snapshotOf(two))), `eth1 from ${B}`);
  await bed.clock.advance(1000);
  before = bed.clock.monotonic();
  assert.equal(await bed.outcome(bed.request(snapshotOf(two))), `eth0 from ${A}`);
  assert.ok(bed.connections.filter(({ isDestroyed }) => !isDestroyed).length <= 4);
});

test("Dialler: of two on probation that connect in the same moment, the one that is not taken is closed", async () => {
  for (const cost of [0, 1]) {
    const gates = [new Deferred(), new Deferred()];
    const bed = new DiallerBed({ [A]: gates[0] as Deferred, [B]: gates[1] as Deferred });
    for (const name of ["eth0", "eth1"]) bed.penalties.add(TARGET, name);
    await bed.clock.advance(bed.selection.penaltyMs + 1);
    const equals = [uplink("eth0", { sources: [A] }), uplink("eth1", { sources: [B], cost })];
    const dialled = bed.dialler.dial(bed.request(snapshotOf(equals)));
    await bed.clock.advance(900);
    assert.equal(bed.open, 2);
    // The one that began later is there first.
    const [first, second] = bed.log.at(-1)?.includes(B) === true ? [gates[1], gates[0]] : [gates[0], gates[1]];
    first?.resolve();
    second?.resolve();
    await bed.clock.advance(10);
    const { connection } = await dialled;
    assert.equal(bed.connections.length, 2);
    for (const each of bed.connections) assert.equal(each.isDestroyed, each !== connection, each.source);
  }
});

test("Dialler: one request at a time tries out an uplink whose penalty has ended, however many there are", async () => {
  const bed = new DiallerBed({ [A]: "silent", [B]: 0 });
  bed.penalties.add(TARGET, "eth0");
  await bed.clock.advance(bed.selection.penaltyMs + 1);
  for (let request = 0; request < 20; request += 1) {
    assert.equal(await bed.outcome(bed.request(snapshotOf(two))), `eth1 from ${B}`);
    assert.ok(bed.open <= 1, `${bed.open} attempts go on`);
  }
  assert.equal(bed.open, 1);
  // It goes on by itself until it has had its time, and the next penalty is the longer one.
  await bed.clock.advance(snapshotOf(two).dialTimeoutMs);
  assert.deepEqual([bed.open, bed.penalties.stateOf(TARGET, "eth0")], [0, "penalised"]);
  await bed.clock.advance(2 * bed.selection.penaltyMs);
  assert.equal(bed.penalties.stateOf(TARGET, "eth0"), "probation");
  bed.behaviours[A] = 0;
  assert.equal(await bed.outcome(bed.request(snapshotOf(two))), `eth0 from ${A}`);
});

test("Dialler: a connection that is there when the request's time ends is taken", async () => {
  const gates = [new Deferred(), new Deferred()];
  const bed = new DiallerBed({ [A]: gates[0] as Deferred, [B]: gates[1] as Deferred }, { tierDelayMs: 100 });
  const deadlineAt = bed.clock.monotonic() + 3500;
  // In the same moment, before the deadline.
  bed.clock.after(3500, () => gates[1]?.resolve());
  const outcome = bed.outcome(bed.request(snapshotOf(two), { deadlineAt }));
  assert.equal(await outcome, `eth1 from ${B}`);
  assert.deepEqual(
    bed.penalties.list().map(({ uplink: name }) => name),
    ["eth0"],
  );
});

test("Dialler: an uplink that swallowed payload is tried out by one request until a byte comes, however many connect", async () => {
  for (const cause of ["blackhole", "stall"] as const) {
    const bed = new DiallerBed({ [A]: 0, [B]: 0 });
    const dial = async () => await bed.dialler.dial(bed.request(snapshotOf(two)));
    bed.penalties.add(TARGET, "eth0", cause);
    await bed.clock.advance(bed.selection.penaltyMs + 1);
    const vias: string[] = [];
    const tried = await dial();
    for (let request = 1; request < 20; request += 1) vias.push((await dial()).uplink?.name ?? "");
    assert.deepEqual([tried.uplink?.name, new Set(vias)], ["eth0", new Set(["eth1"])]);
    // That tunnel has ended without a verdict: the next request is the trial, and has the head start of an uplink that connects.
    tried.trial?.end();
    bed.behaviours = { [A]: 1000, [B]: 0 };
    assert.equal(await bed.outcome(bed.request(snapshotOf(two))), `eth0 from ${A}`);
    assert.equal(await bed.outcome(bed.request(snapshotOf(two))), `eth1 from ${B}`);
    // Ending a trial twice ends no other.
    tried.trial?.end();
    assert.equal(await bed.outcome(bed.request(snapshotOf(two))), `eth1 from ${B}`);
    // A byte has come.
    bed.penalties.clear(TARGET, "eth0");
    for (let request = 0; request < 3; request += 1)
      assert.equal(await bed.outcome(bed.request(snapshotOf(two))), `eth0 from ${A}`);
  }
});

test("Dialler: a trial whose connection nobody takes ends with its request", async () => {
  const bed = new DiallerBed({ [A]: 700, [B]: 0 });
  bed.penalties.add(TARGET, "eth0", "blackhole");
  await bed.clock.advance(bed.selection.penaltyMs + 1);
  assert.equal(await bed.outcome(bed.request(snapshotOf(two))), `eth1 from ${B}`);
  assert.equal(bed.penalties.stateOf(TARGET, "eth0"), "penalised");
  await bed.clock.advance(1000);
  assert.equal(bed.penalties.stateOf(TARGET, "eth0"), "good");
  // The next request waits for it, and it alone.
  const [first, second] = [bed.request(snapshotOf(two)), bed.request(snapshotOf(two))];
  const outcomes = [bed.outcome(first), bed.outcome(second)];
  assert.deepEqual(await Promise.all(outcomes), [`eth0 from ${A}`, `eth1 from ${B}`]);
});

test("Dialler: a handshake during a penalty proves nothing after a blackhole, but does after a connect without an answer", async () => {
  for (const [cause, expected] of [
    ["blackhole", "penalised"],
    ["no-connection", "good"],
  ] as const) {
    const bed = new DiallerBed({ [A]: 0 });
    bed.penalties.add(TARGET, "eth0", cause);
    assert.equal(await bed.outcome(bed.request(snapshotOf([uplink("eth0", { sources: [A] })]))), `eth0 from ${A}`);
    assert.equal(bed.penalties.stateOf(TARGET, "eth0"), expected, cause);
  }
});

test("Dialler: a trial that goes on after its request ends with its uplink or its link, and says nothing of the uplink", async () => {
  const equals = [A, B].map((source, at) => uplink(`eth${at}`, { sources: [source] }));
  const [first, second] = equals;
  assert.ok(first !== undefined && second !== undefined);
  for (const after of [[second], [{ ...first, isUp: false }, second]]) {
    const bed = new DiallerBed({ [A]: "silent", [B]: 5 });
    assert.equal(await bed.outcome(bed.request(snapshotOf(equals))), `eth1 from ${B}`);
    bed.dialler.snapshotChanged(snapshotOf(equals));
    await bed.clock.advance(100);
    assert.equal(bed.open, 1);
    // Its packets would leave over another uplink from now on.
    bed.dialler.snapshotChanged(snapshotOf(after));
    await bed.clock.advance(0);
    assert.equal(bed.open, 0);
    await bed.clock.advance(20_000);
    assert.deepEqual(
      bed.evidence.lines.filter((line) => line.includes("timeout")),
      [],
    );
    assert.deepEqual(bed.penalties.list(), []);
  }
});
