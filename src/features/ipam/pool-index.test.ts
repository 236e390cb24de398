import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "fast-check";
import { MAX_BLOCK_INDEX, PoolIndex } from "./pool-index.ts";

test("PoolIndex: first fit is the lowest free index, whatever was marked and released", () => {
  const step = fc.record({ op: fc.constantFrom("take", "release", "grow"), index: fc.nat(20) });
  fc.assert(
    fc.property(fc.array(step, { maxLength: 80 }), (steps) => {
      const index = new PoolIndex();
      const used = new Set<number>();
      let capacity = 5;
      for (const { op, index: at } of steps) {
        if (op === "grow") capacity = Math.min(20, capacity + 1);
        if (op === "release") {
          used.delete(at);
          index.release(at);
        }
        if (op === "take") {
          const expected = Array.from({ length: capacity }, (_, candidate) => candidate).find((one) => !used.has(one));
          const next = index.next(capacity, "first-fit");
          assert.equal(next, expected);
          if (next !== undefined) {
            used.add(next);
            index.mark(next);
          }
        }
        assert.equal(index.size, used.size);
      }
    }),
  );
});

test("PoolIndex: next fit goes on after the last index and wraps", () => {
  const index = new PoolIndex();
  const take = (): number | undefined => {
    const next = index.next(3, "next-fit");
    if (next !== undefined) index.mark(next);
    return next;
  };
  assert.deepEqual([take(), take()], [0, 1]);
  index.release(0);
  assert.deepEqual([take(), take(), take()], [2, 0, undefined]);
});

test("PoolIndex: a reset forgets; a pool with more blocks than int32 has indexes up to 2^31-1", () => {
  const index = new PoolIndex();
  index.reset([0, 1, 2]);
  assert.equal(index.next(2 ** 40, "first-fit"), 3);
  index.reset([]);
  index.mark(MAX_BLOCK_INDEX);
  assert.equal(index.next(2 ** 40, "next-fit"), 0);
});

test("PoolIndex: indexes that may not be used are stepped over, not taken, and come when they may", () => {
  for (const allocation of ["first-fit", "next-fit"] as const) {
    const index = new PoolIndex();
    const asked: number[] = [];
    const beyond = (at: number): number => {
      asked.push(at);
      return Math.max(0, 2_000_000_000 - at);
    };
    assert.equal(index.next(MAX_BLOCK_INDEX, allocation, beyond), 2_000_000_000);
    assert.deepEqual(asked, [0, 2_000_000_000], "in one step");
    assert.equal(
      index.next(4, allocation, () => 3),
      undefined,
    );
    assert.equal(index.size, 0);
    assert.equal(index.next(4, allocation), 0);
  }
});
