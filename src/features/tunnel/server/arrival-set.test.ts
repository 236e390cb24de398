import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "fast-check";
import { ArrivalSet } from "./arrival-set.ts";

test("ArrivalSet: whatever comes and goes, it is a set in the order of arrival, however large", () => {
  const step = fc.record({ isAdd: fc.integer({ max: 3, min: 0 }).map((n) => n > 0), element: fc.nat(20) });
  fc.assert(
    fc.property(fc.array(step, { maxLength: 80 }), (steps) => {
      const set = new ArrivalSet<number>();
      const model = new Set<number>();
      for (const { isAdd, element } of steps) {
        if (isAdd) {
          assert.equal(set.add(element), !model.has(element));
          model.add(element);
        } else {
          set.delete(element);
          model.delete(element);
        }
        assert.deepEqual([[...set], set.size], [[...model], model.size]);
      }
    }),
  );
});
