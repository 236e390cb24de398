import assert from "node:assert/strict";
import { test } from "node:test";
import { Backoff, Dirty } from "#base/async";
import { FakeClock } from "#base/clock";
import { ExpectedError } from "#base/errors";
import { Health } from "#base/health";
import { reconcile } from "./index.ts";

class SyncError extends ExpectedError<"failed"> {
  override readonly name = "SyncError";
}

/** A loop on a clock of its own, with syncs of the test. */
function loop(sync: (run: number) => number | Error) {
  const clock = new FakeClock();
  const dirty = new Dirty(clock);
  const health = new Health({ clock });
  const stop = new AbortController();
  const times: number[] = [];
  const done = reconcile({
    dirty,
    health: health.part("part"),
    signal: stop.signal,
    resyncMs: 1000,
    backoff: new Backoff({ initialMs: 10, maxMs: 100, jitter: 0 }),
    sync: async () => {
      times.push(clock.monotonic());
      const result = sync(times.length);
      if (result instanceof Error) throw result;
      return result;
    },
  });
  done.catch(() => undefined);
  return { clock, dirty, health, stop, times, done };
}

test("reconcile: syncs at once, when marked, and on the timer", async () => {
  const { clock, dirty, health, stop, times, done } = loop(() => 2);
  await clock.advance(5);
  dirty.mark("test");
  dirty.mark("test");
  await clock.advance(0);
  await clock.advance(1000);
  assert.deepEqual(times, [0, 5, 1005]);
  assert.deepEqual(
    health.parts.map(({ status, reason }) => [status, reason]),
    [["ok", "2 changes"]],
  );
  stop.abort();
  await done;
});

test("reconcile: expected failures are reported and retried with growing pauses, which a success ends", async () => {
  const { clock, health, stop, times, done } = loop((run) =>
    run <= 3 || run === 5 ? new SyncError("failed", "no luck") : 0,
  );
  await clock.advance(0);
  assert.deepEqual(
    health.parts.map(({ status, reason }) => [status, reason]),
    [["degraded", "no luck"]],
  );
  await clock.advance(70);
  assert.deepEqual(times, [0, 10, 30, 70]);
  await clock.advance(1010);
  assert.deepEqual(times.slice(4), [1070, 1080]);
  stop.abort();
  await done;
});

test("reconcile: a mark cuts a pause after a failure short", async () => {
  const { clock, dirty, stop, times, done } = loop(() => new SyncError("failed", "no luck"));
  await clock.advance(3);
  dirty.mark("test");
  await clock.advance(0);
  assert.deepEqual(times, [0, 3]);
  stop.abort();
  await done;
});

test("reconcile: a bug ends the loop with it", async () => {
  const { done } = loop(() => new TypeError("a bug"));
  await assert.rejects(done, { name: "TypeError", message: "a bug" });
});

test("reconcile: a sync that fails because of the abort is no failure", async () => {
  const health = new Health();
  const stop = new AbortController();
  await reconcile({
    dirty: new Dirty(),
    health: health.part("part"),
    signal: stop.signal,
    resyncMs: 1000,
    sync: async () => {
      stop.abort();
      throw stop.signal.reason;
    },
  });
  assert.equal(health.parts[0]?.status, "starting");
});
