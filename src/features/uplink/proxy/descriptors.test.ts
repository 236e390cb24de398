import assert from "node:assert/strict";
import { type TestContext, test } from "node:test";
import { FakeClock } from "#base/clock";
import { Room } from "../front/index.ts";
import { DescriptorWatch, parseOpenFiles } from "./descriptors.ts";

/** The room after a watch, which thought that descriptors had run out, has counted once. */
async function watched(t: TestContext, list: () => Promise<readonly string[]>): Promise<Room> {
  const limits = { tunnels: 10, dialling: 10 };
  const room = new Room(() => limits);
  room.isStarved = true;
  const stop = new AbortController();
  t.after(() => stop.abort());
  const counted = Promise.withResolvers<void>();
  const clock = new FakeClock();
  const watch = new DescriptorWatch(room, clock, () => {
    setImmediate(counted.resolve);
    return list();
  });
  const done = watch.run({ signal: stop.signal });
  await Promise.race([counted.promise, done]);
  stop.abort();
  await assert.rejects(done, { name: "AbortError" });
  return room;
}

test("DescriptorWatch: without a descriptor left to count the others by, there is no room and no crash", async (t) => {
  const room = await watched(t, () => Promise.reject(Object.assign(new Error("too many"), { code: "EMFILE" })));
  assert.equal(room.isStarved, true);
  assert.equal(room.tryTake(), false);
});

test("DescriptorWatch: with descriptors to spare there is room again", async (t) => {
  const room = await watched(t, () => Promise.resolve(["0", "1", "2"]));
  assert.equal(room.tryTake(), true);
});

test("parseOpenFiles: the soft limit; none where the text has none", () => {
  assert.equal(
    parseOpenFiles("Limit  Soft\nMax open files            1024                 524288               files\n"),
    1024,
  );
  assert.equal(
    parseOpenFiles("Max open files            unlimited            unlimited            files\n"),
    Number.POSITIVE_INFINITY,
  );
});
