import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "fast-check";
import { DrawableSet } from "./drawable-set.ts";

test("DrawableSet: it has what a set has, small or large, and each element is drawn", () => {
  const step = fc.record({ adds: fc.boolean(), element: fc.nat(20) });
  fc.assert(
    fc.property(fc.array(step, { maxLength: 200 }), (steps) => {
      const [set, model] = [new DrawableSet<number>(), new Set<number>()];
      for (const { adds, element } of steps) {
        if (adds) {
          set.add(element);
          model.add(element);
        } else {
          set.delete(element);
          model.delete(element);
        }
        assert.equal(set.size, model.size);
      }
      assert.deepEqual(new Set(set), model);
      const drawn = Array.from({ length: set.size }, (_, at) =>
        set.draw(
          (one) => one,
          () => (at + 0.5) / set.size,
        ),
      );
      assert.deepEqual(new Set(drawn), model);
    }),
  );
});
