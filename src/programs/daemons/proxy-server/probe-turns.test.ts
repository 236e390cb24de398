import assert from "node:assert/strict";
import { test } from "node:test";
import { FakeClock } from "#base/clock";
import { ExpectedError } from "#base/errors";
import { nullLogger } from "#base/log";
import { ProbeTurns } from "./probe-turns.ts";

class Fault extends ExpectedError<"cannot-listen"> {}

function setUp() {
  const clock = new FakeClock();
  const succession = {
    isBehind: false,
    waits: false,
    isWaiting: async (): Promise<boolean> => succession.waits,
  };
  const ports = { opened: 0, closed: 0, isRefused: false };
  const open = async (): Promise<AsyncDisposable> => {
    if (ports.isRefused) throw new Fault("cannot-listen", "the port is taken");
    ports.opened += 1;
    return {
      [Symbol.asyncDispose]: async () => {
        ports.closed += 1;
      },
    };
  };
  const onBug = (error: unknown): never => assert.fail(String(error));
  const deps = { open, succession, log: nullLogger, clock, onBug };
  return { clock, succession, ports, deps, counts: () => [ports.opened, ports.closed] };
}

test("ProbeTurns: probes are the follower's as long as one waits, and this server's before and after", async () => {
  const { clock, succession, ports, deps, counts } = setUp();
  await using turns = await ProbeTurns.open(deps);
  await clock.advance(1000);
  assert.deepEqual(counts(), [1, 0]);
  succession.waits = true;
  await clock.advance(1000);
  assert.deepEqual(counts(), [1, 1]);
  succession.waits = false;
  ports.isRefused = true;
  await clock.advance(1000);
  assert.deepEqual(counts(), [1, 1]);
  ports.isRefused = false;
  await clock.advance(1000);
  assert.deepEqual(counts(), [2, 1]);
  await turns[Symbol.asyncDispose]();
  assert.deepEqual(counts(), [2, 2]);
});

test("ProbeTurns: a follower, which waits itself, answers its own probes; once it serves it looks for a follower of its own", async () => {
  const { clock, succession, deps, counts } = setUp();
  succession.isBehind = true;
  succession.waits = true;
  await using turns = await ProbeTurns.open(deps);
  await clock.advance(1000);
  assert.deepEqual(counts(), [1, 0]);
  succession.isBehind = false;
  await clock.advance(1000);
  assert.deepEqual(counts(), [1, 1]);
  await turns[Symbol.asyncDispose]();
  await clock.advance(1000);
  assert.deepEqual(counts(), [1, 1]);
});
