import assert from "node:assert/strict";
import { test } from "node:test";
import { FakeClock } from "#base/clock";
import { ExpectedError } from "#base/errors";
import { Backoff, type RetryOptions, retry } from "./index.ts";

class Refused extends ExpectedError<"passing" | "final"> {}

/** Tries on a fake clock; each of `outcomes` is the outcome of one, the last one of all further ones. */
function tries(outcomes: readonly ("passing" | "final" | "ok" | Error)[], options: Partial<RetryOptions> = {}) {
  const clock = new FakeClock();
  const began: number[] = [];
  const failures: string[] = [];
  const done = retry(
    async () => {
      const outcome = outcomes[began.length] ?? outcomes.at(-1);
      began.push(clock.monotonic());
      if (outcome instanceof Error) throw outcome;
      if (outcome !== "ok") throw new Refused(outcome ?? "final", `${outcome} ${began.length}`);
      return began.length;
    },
    {
      clock,
      backoff: new Backoff({ initialMs: 10, maxMs: 40, jitter: 0 }),
      isPassing: (error) => error instanceof Refused && error.code === "passing",
      onFailure: (error, retryInMs) => failures.push(`${(error as Error).message}: ${retryInMs}`),
      ...options,
    },
  );
  done.catch(() => undefined);
  const advance = async (ms: number): Promise<void> => {
    for (let at = 0; at < ms; at += 5) await clock.advance(5);
  };
  return { clock, done, began, failures, advance };
}

test("retry: the first success is the result; pauses follow the backoff, and each failure before them is told", async () => {
  const { clock, done, began, failures, advance } = tries(["passing", "passing", "passing", "passing", "ok"]);
  await advance(200);
  assert.equal(await done, 5);
  assert.deepEqual(began, [0, 10, 30, 70, 110]);
  assert.deepEqual(failures, ["passing 1: 10", "passing 2: 20", "passing 3: 40", "passing 4: 40"]);
  assert.equal(clock.pending, 0);
});

test("retry: a failure that is final, or that is a bug, is thrown at once", async () => {
  const refused = tries(["passing", "final"]);
  await refused.advance(50);
  await assert.rejects(refused.done, { message: "final 2" });
  assert.deepEqual(refused.failures, ["passing 1: 10"]);
  await assert.rejects(tries([new TypeError("a bug")]).done, { name: "TypeError" });
});

test("retry: the last failure is thrown when there were enough tries, or the time is over", async () => {
  const counted = tries(["passing"], { maxTries: 3 });
  await counted.advance(100);
  await assert.rejects(counted.done, { message: "passing 3" });
  assert.deepEqual(counted.failures, ["passing 1: 10", "passing 2: 20"]);
  const timed = tries(["passing"], { limitMs: 70 });
  await timed.advance(300);
  await assert.rejects(timed.done, { message: "passing 4" });
  assert.deepEqual(timed.began, [0, 10, 30, 70]);
});

test("retry: an abort ends the pause, the tries, and the wait for a first one, with the signal's reason", async () => {
  const stop = new AbortController();
  const { clock, done, began, advance } = tries(["passing"], { signal: stop.signal });
  await advance(15);
  stop.abort(new DOMException("enough", "AbortError"));
  await assert.rejects(done, { message: "enough" });
  assert.deepEqual([began.length, clock.pending], [2, 0]);
  const late = tries(["ok"], { signal: stop.signal });
  await assert.rejects(late.done, { message: "enough" });
  assert.deepEqual(late.began, []);
  const during = new AbortController();
  const work = async (): Promise<void> => {
    during.abort(new DOMException("enough", "AbortError"));
    throw new Refused("passing", "no");
  };
  const backoff = new Backoff({ initialMs: 10, maxMs: 10 });
  await assert.rejects(retry(work, { signal: during.signal, backoff, clock, isPassing: () => true }), {
    message: "enough",
  });
});
