import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "fast-check";
import { makeByHalves } from "./by-halves.ts";

class Refused extends Error {}

/** A server that makes all or none, and counts its calls. */
function server(bad: ReadonlySet<number>) {
  const made: number[] = [];
  let calls = 0;
  return {
    made,
    calls: () => calls,
    make: async (items: readonly number[]): Promise<readonly string[]> => {
      calls += 1;
      if (items.some((item) => bad.has(item))) throw new Refused();
      made.push(...items);
      return items.map((item) => `made ${item}`);
    },
  };
}
const isRefusal = (error: unknown): boolean => error instanceof Refused;
const range = (count: number): number[] => Array.from({ length: count }, (_, at) => at);

test("makeByHalves: without a bad item there is one call, and none for no item (T-7)", async () => {
  const { make, calls } = server(new Set());
  assert.deepEqual(await makeByHalves([], make, isRefusal), []);
  assert.equal((await makeByHalves(range(50), make, isRefusal)).length, 50);
  assert.equal(calls(), 1);
});

test("makeByHalves: of any items all good ones are made once, in order, with 2 log2(n) calls more for each bad one at most (T-7)", async () => {
  await fc.assert(
    fc.asyncProperty(
      fc.integer({ min: 1, max: 50 }),
      fc.uniqueArray(fc.integer({ min: 0, max: 49 }), { maxLength: 5 }),
      async (count, some) => {
        const bad = new Set(some.filter((item) => item < count));
        const { make, made, calls } = server(bad);
        const ends = await makeByHalves(range(count), make, isRefusal);
        assert.deepEqual(
          ends.map((end) => ("value" in end ? end.value : end.error instanceof Refused)),
          range(count).map((item) => (bad.has(item) ? true : `made ${item}`)),
        );
        assert.deepEqual(
          made,
          range(count).filter((item) => !bad.has(item)),
        );
        assert.ok(calls() <= 1 + bad.size * 2 * Math.ceil(Math.log2(Math.max(count, 1))), `${calls()} calls`);
      },
    ),
  );
});

test("makeByHalves: an error that is no refusal is not followed by another call, since items may have been made", async () => {
  let calls = 0;
  const ends = await makeByHalves(
    range(8),
    async () => {
      calls += 1;
      throw new Error("lost");
    },
    isRefusal,
  );
  assert.deepEqual([calls, ends.length, ends.every((end) => "error" in end)], [1, 8, true]);
});
