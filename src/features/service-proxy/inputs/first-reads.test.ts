import assert from "node:assert/strict";
import { test } from "node:test";
import { FakeClock } from "#base/clock";
import { nullLogger } from "#base/log";
import { KubeError, type KubeErrorCode } from "#kube/client";
import { FirstReads } from "./first-reads.ts";

const READS = [
  { resource: "nodes", without: "let it" },
  { resource: "servicecidrs", without: "let it", isOptional: true },
];

function rig() {
  const clock = new FakeClock();
  const warnings: string[] = [];
  const log = { ...nullLogger, warn: (message: string) => warnings.push(message) };
  const reads = new FirstReads(READS, { log, clock });
  let isDone = false;
  void reads.done.then(() => {
    isDone = true;
  });
  const fail = (resource: string, code: KubeErrorCode, failures = 1): void =>
    reads.onHealth(resource, { state: "degraded", error: new KubeError(code, code), failures });
  return { clock, warnings, reads, fail, isDone: () => isDone };
}

test("FirstReads: done when all resources have been read; an optional one that is not served counts as read", async () => {
  const { clock, warnings, reads, fail, isDone } = rig();
  fail("servicecidrs", "not-found");
  await clock.advance(100_000);
  assert.equal(isDone(), false);
  reads.read("nodes");
  reads.lacks("nodes", "addresses");
  await clock.advance(100_000);
  assert.equal(isDone(), true);
  assert.deepEqual(warnings, []);
});

test("FirstReads: a server that cannot be reached is waited for; one that refuses for 30 s is not, with a warning", async () => {
  const { clock, warnings, reads, fail, isDone } = rig();
  reads.read("servicecidrs");
  fail("nodes", "forbidden");
  await clock.advance(20_000);
  fail("nodes", "unreachable", 2);
  await clock.advance(3_600_000);
  assert.equal(isDone(), false);
  fail("nodes", "forbidden", 3);
  await clock.advance(20_000);
  fail("nodes", "forbidden", 4);
  await clock.advance(9_000);
  assert.equal(isDone(), false);
  await clock.advance(1_000);
  assert.equal(isDone(), true);
  assert.deepEqual(warnings, ["continuing without nodes"]);
});

test("FirstReads: a resource that was read but lacks something is waited for 30 s", async () => {
  const { clock, warnings, reads, isDone } = rig();
  reads.read("servicecidrs");
  reads.lacks("nodes", "the Node has no addresses");
  await clock.advance(29_000);
  assert.equal(isDone(), false);
  reads.read("nodes");
  await clock.advance(5_000);
  assert.equal(isDone(), true);
  assert.deepEqual(warnings, []);
  assert.equal(clock.pending, 0);
});

test("FirstReads: what a resource lacks is waited for 30 s also if the server was away meanwhile", async () => {
  const { clock, warnings, reads, fail, isDone } = rig();
  reads.read("servicecidrs");
  reads.lacks("nodes", "there is no Node node-1");
  await clock.advance(10_000);
  fail("nodes", "unreachable");
  await clock.advance(3_600_000);
  assert.equal(isDone(), false);
  // The watch goes on where it was, without a list.
  reads.onHealth("nodes", { state: "ready" });
  await clock.advance(29_000);
  assert.equal(isDone(), false);
  await clock.advance(1_000);
  assert.equal(isDone(), true);
  assert.deepEqual(warnings, ["continuing without nodes"]);
});
