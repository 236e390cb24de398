import assert from "node:assert/strict";
import { test } from "node:test";
import { FakeClock } from "#base/clock";
import { FrontendShare } from "./frontend-share.ts";

function setUp() {
  const clock = new FakeClock();
  const backends = { isEmpty: true };
  const frontends = { isPaused: false };
  const reports: boolean[] = [];
  let onOthers: (canServe: boolean) => void = () => undefined;
  const room = { isThere: true };
  const worker = {
    reportServing: (canServe: boolean) => void reports.push(canServe),
    onOthers: (handler: (canServe: boolean) => void) => {
      onOthers = handler;
    },
  };
  const share = new FrontendShare({ worker, backends, frontends, clock, hasRoom: () => room.isThere });
  return { clock, backends, frontends, reports, room, share, others: (canServe: boolean) => onOthers(canServe) };
}

test("FrontendShare: a worker without an agent leaves frontends to one that has some", () => {
  const { backends, frontends, reports, share, others } = setUp();
  assert.deepEqual([reports, frontends.isPaused], [[false], false]);
  others(true);
  assert.equal(frontends.isPaused, true);
  backends.isEmpty = false;
  share.update();
  assert.deepEqual([reports.at(-1), frontends.isPaused], [true, false]);
  backends.isEmpty = true;
  share.update();
  assert.deepEqual([reports.at(-1), frontends.isPaused], [false, true]);
  others(false);
  assert.equal(frontends.isPaused, false);
});

test("FrontendShare: a worker without descriptors leaves frontends to others until it has some, if there are any", async () => {
  const { clock, backends, frontends, reports, room, share, others } = setUp();
  backends.isEmpty = false;
  share.update();
  others(true);
  room.isThere = false;
  share.noteShortage();
  share.noteShortage();
  assert.deepEqual([reports.at(-1), frontends.isPaused], [false, true]);
  await clock.advance(3000);
  assert.deepEqual([reports.at(-1), frontends.isPaused], [false, true]);
  // No worker can serve: each accepts, and refuses.
  others(false);
  assert.equal(frontends.isPaused, false);
  others(true);
  room.isThere = true;
  await clock.advance(1000);
  assert.deepEqual([reports.at(-1), frontends.isPaused], [true, false]);
});
