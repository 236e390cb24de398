import assert from "node:assert/strict";
import { test } from "node:test";
import { Deferred, unlessAborted, untilAborted } from "./index.ts";

test("unlessAborted: is as the work where no signal aborts, and listens to the signal no longer", async () => {
  const stop = new AbortController();
  let listeners = 0;
  const { signal } = stop;
  const [add, remove] = [signal.addEventListener.bind(signal), signal.removeEventListener.bind(signal)];
  signal.addEventListener = (...args: Parameters<typeof add>): void => {
    listeners += 1;
    add(...args);
  };
  signal.removeEventListener = (...args: Parameters<typeof remove>): void => {
    listeners -= 1;
    remove(...args);
  };
  const failure = new Error("no");
  for (const options of [{ signal }, {}]) {
    assert.equal(await unlessAborted(Promise.resolve(7), options), 7);
    await assert.rejects(unlessAborted(Promise.reject(failure), options), failure);
  }
  assert.equal(listeners, 0);
});

test("unlessAborted: an abort, also an earlier one, rejects with its reason; the work goes on, and its failure is ignored", async () => {
  const stop = new AbortController();
  const reason = new Error("enough");
  const work = new Deferred<number>();
  const waiting = unlessAborted(work.promise, { signal: stop.signal });
  stop.abort(reason);
  await assert.rejects(waiting, reason);
  await assert.rejects(unlessAborted(work.promise, { signal: stop.signal }), reason);
  await assert.rejects(unlessAborted(Promise.resolve(7), { signal: stop.signal }), reason);
  work.reject(new Error("late"));
  // An unhandled rejection would end the test here.
  await new Promise((resolve) => setImmediate(resolve));
  await assert.rejects(work.promise, /late/);
});

test("untilAborted: resolves at the abort, and at once for a signal that is aborted already", async () => {
  const stop = new AbortController();
  let isOver = false;
  const over = untilAborted(stop.signal).then(() => {
    isOver = true;
  });
  await new Promise((resolve) => setImmediate(resolve));
  assert.equal(isOver, false);
  stop.abort();
  await over;
  await untilAborted(stop.signal);
});
