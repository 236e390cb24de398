import assert from "node:assert/strict";
import { test } from "node:test";
import { Backoff, Dirty } from "#base/async";
import { FakeClock } from "#base/clock";
import { ExpectedError } from "#base/errors";
import { repeat } from "./index.ts";

class Refused extends ExpectedError<"refused"> {}

/** A loop on a fake clock whose runs follow `script`. Returns the time of each run. */
function loop(script: readonly (() => void)[], options: Partial<Parameters<typeof repeat>[1]> = {}) {
  const clock = new FakeClock();
  const stop = new AbortController();
  const runs: number[] = [];
  const failures: string[] = [];
  const done = repeat(
    async () => {
      runs.push(clock.monotonic());
      script[runs.length - 1]?.();
    },
    { signal: stop.signal, clock, everyMs: 100, onFailure: ({ message }) => failures.push(message), ...options },
  );
  const start = clock.monotonic();
  return { clock, stop, done, failures, runs: () => runs.map((at) => at - start) };
}

const refuse = (): never => {
  throw new Refused("refused", "no");
};
const pass = (): void => undefined;

test("repeat: runs at once and then at its interval", async () => {
  const { clock, stop, done, runs } = loop([]);
  for (let at = 0; at < 25; at += 1) await clock.advance(10);
  assert.deepEqual(runs(), [0, 100, 200]);
  stop.abort();
  await done;
  assert.equal(clock.pending, 0);
});

test("repeat: failures wait for the backoff and are reported; a success resets it", async () => {
  const backoff = new Backoff({ initialMs: 10, maxMs: 1000, jitter: 0 });
  const { clock, stop, done, runs, failures } = loop([refuse, refuse, pass, refuse], { backoff });
  for (let at = 0; at < 15; at += 1) await clock.advance(10);
  assert.deepEqual(runs(), [0, 10, 30, 130, 140]);
  assert.deepEqual(failures, ["no", "no", "no"]);
  stop.abort();
  await done;
});

test("repeat: a mark ends the pause, and retryAfterMs replaces the backoff", async () => {
  const clock = new FakeClock();
  const dirty = new Dirty(clock);
  const stop = new AbortController();
  let runs = 0;
  const done = repeat(
    async () => {
      runs += 1;
      if (runs === 2) refuse();
    },
    { signal: stop.signal, clock, dirty, everyMs: 1e6, onFailure: () => undefined, retryAfterMs: () => 5 },
  );
  await clock.advance(1);
  dirty.mark("test");
  await clock.advance(1);
  assert.equal(runs, 2);
  await clock.advance(5);
  assert.equal(runs, 3);
  stop.abort();
  await done;
});

test("repeat: a bug rejects, and an error after the abort is a clean end", async () => {
  const bug = loop([
    () => {
      throw new TypeError("bug");
    },
  ]);
  await assert.rejects(bug.done, { message: "bug" });
  const stop = new AbortController();
  await repeat(
    async () => {
      stop.abort();
      throw new Error("cut short");
    },
    { signal: stop.signal, everyMs: 1, onFailure: () => assert.fail("reported") },
  );
});
