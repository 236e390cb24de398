import assert from "node:assert/strict";
import { test } from "node:test";
import { FakeClock } from "#base/clock";
import { BlockedTime } from "./blocked-time.ts";

/** A clock whose timers fire late when it is told so. */
class BlockableClock extends FakeClock {
  #blockedMs = 0;

  override monotonic(): number {
    return super.monotonic() + this.#blockedMs;
  }

  block(ms: number): void {
    this.#blockedMs += ms;
  }
}

test("BlockedTime: what blocks the event loop counts while it lasts and for 20 s after; time that passes with nothing to do does not", async () => {
  const clock = new BlockableClock();
  using blocked = new BlockedTime(clock);
  await clock.advance(60_000);
  assert.equal(blocked.lately, 0);
  clock.block(6000);
  assert.equal(blocked.lately, 5000, "the next look was due after a second");
  await clock.advance(1000);
  assert.equal(blocked.lately, 6000);
  clock.block(3000);
  await clock.advance(1000);
  assert.equal(blocked.lately, 9000);
  await clock.advance(20_000);
  assert.equal(blocked.lately, 0);
});
