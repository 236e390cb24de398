import assert from "node:assert/strict";
import { test } from "node:test";
import { FakeClock } from "#base/clock";
import { ResolveCache } from "./resolve-cache.ts";

test("ResolveCache: an answer is kept for 60 s, a failure for 5 s, and one look-up serves all who ask meanwhile", async () => {
  const clock = new FakeClock();
  const cache = new ResolveCache<number>({ clock });
  let looks = 0;
  let fails = false;
  const get = (): Promise<number> =>
    cache.get(
      "a",
      async () => {
        looks += 1;
        if (fails) throw new Error("no such VPC");
        return looks;
      },
      {},
    );
  assert.deepEqual(await Promise.all([get(), get(), get()]), [1, 1, 1]);
  await clock.advance(59_999);
  assert.equal(await get(), 1);
  fails = true;
  await clock.advance(1);
  await assert.rejects(get(), /no such VPC/);
  fails = false;
  await clock.advance(4999);
  await assert.rejects(get(), /no such VPC/);
  await clock.advance(1);
  assert.equal(await get(), 3);
});

test("ResolveCache: an answer that is asked to be younger is looked up again, and the new one serves all others", async () => {
  const clock = new FakeClock();
  const cache = new ResolveCache<number>({ clock });
  let looks = 0;
  const look = async (): Promise<number> => {
    await new Promise<void>((resolve) => void clock.after(10, resolve));
    looks += 1;
    return looks;
  };
  const get = (maxAgeMs?: number): Promise<number> => cache.get("a", look, { maxAgeMs });
  const ask = async (...ages: readonly (number | undefined)[]): Promise<readonly number[]> => {
    const asked = Promise.all(ages.map(get));
    await clock.advance(10);
    return await asked;
  };
  assert.deepEqual(await ask(undefined, 0, 1000), [1, 1, 1]);
  await clock.advance(900);
  assert.deepEqual(await ask(undefined, 1000), [1, 1]);
  // Its age is that of the look's beginning.
  await clock.advance(81);
  assert.deepEqual(await ask(1000), [2]);
  assert.deepEqual(await ask(1000, undefined), [2, 2]);
  await clock.advance(1000);
  assert.deepEqual(await ask(undefined, 1000, 1000), [2, 3, 3]);
});

test("ResolveCache: a caller that gives up does not end the look-up of others; the number of answers is bounded", async () => {
  const cache = new ResolveCache<number>({ clock: new FakeClock() });
  const { promise, resolve } = Promise.withResolvers<number>();
  const controller = new AbortController();
  const given = cache.get("a", () => promise, { signal: controller.signal });
  const other = cache.get("a", () => assert.fail("a second look"), {});
  controller.abort(new Error("enough"));
  await assert.rejects(given, /enough/);
  resolve(7);
  assert.equal(await other, 7);
  for (let at = 0; at < 2000; at += 1) await cache.get(`b${at}`, async () => at, {});
  assert.equal(await cache.get("a", async () => 8, {}), 8, "the oldest has gone");
});
