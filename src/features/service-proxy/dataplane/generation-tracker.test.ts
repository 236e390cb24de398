import assert from "node:assert/strict";
import { test } from "node:test";
import { KernelError } from "#kernel/errors";
import { GenerationTracker } from "./generation-tracker.ts";

/** A kernel that does not tell its generation while it is busy. */
class Generations {
  now = 7;
  isBusy = false;

  generation(): number {
    if (this.isBusy)
      throw new KernelError("failed", "cannot receive from netlink: no buffer space", { errno: "ENOBUFS" });
    return this.now;
  }
}

test("GenerationTracker: a transaction whose end cannot be counted rejects, and holds up nobody who waits for it", async () => {
  const kernel = new Generations();
  const tracker = new GenerationTracker(kernel);
  const sent = Promise.withResolvers<void>();
  const running = tracker.transact(() => sent.promise);
  const idle = tracker.idle();
  kernel.now += 1;
  kernel.isBusy = true;
  sent.resolve();
  await assert.rejects(running, KernelError);
  await idle;
  kernel.isBusy = false;
  await tracker.transact(() => {
    kernel.now += 1;
  });
  assert.equal(tracker.hasForeignChanges, false, "both transactions were ours");
});

test("GenerationTracker: a transaction that the kernel refuses hides none of another program", async () => {
  const kernel = new Generations();
  const tracker = new GenerationTracker(kernel);
  const refused = new KernelError("not-found", "cannot delete an element: no such element");
  await assert.rejects(
    tracker.transact(() => {
      // Another program's transaction, which is why ours is refused.
      kernel.now += 1;
      throw refused;
    }),
    refused,
  );
  assert.equal(tracker.hasForeignChanges, true);
  tracker.settle();
  await assert.rejects(
    tracker.transact(() => Promise.reject(refused)),
    refused,
  );
  await tracker.transact(() => {
    kernel.now += 1;
  });
  assert.equal(tracker.hasForeignChanges, false);
});

test("GenerationTracker: changes that could not be settled are still there", async () => {
  const kernel = new Generations();
  const tracker = new GenerationTracker(kernel);
  // Another program's transaction beside one of ours.
  await tracker.transact(() => {
    kernel.now += 2;
  });
  kernel.isBusy = true;
  assert.throws(() => tracker.settle(), KernelError);
  kernel.isBusy = false;
  assert.equal(tracker.hasForeignChanges, true);
  tracker.settle();
  assert.equal(tracker.hasForeignChanges, false);
});
