import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "fast-check";
import { CompactMultimap } from "./compact-multimap.ts";

test("CompactMultimap: equals a map of sets after any additions and removals", () => {
  const step = fc.record({
    op: fc.constantFrom("add", "remove"),
    key: fc.constantFrom("a", "b"),
    text: fc.constantFrom("", "x", "y", "z"),
  });
  fc.assert(
    fc.property(fc.array(step as fc.Arbitrary<{ op: "add" | "remove"; key: string; text: string }>), (steps) => {
      const few = new CompactMultimap<string>();
      const model = new Map<string, Set<string>>();
      for (const { op, key, text } of steps) {
        few[op](key, text);
        const texts = model.get(key) ?? new Set();
        if (op === "add") texts.add(text);
        else texts.delete(text);
        if (texts.size > 0) model.set(key, texts);
        else model.delete(key);
        for (const one of ["a", "b"]) {
          assert.equal(few.has(one), model.has(one));
          assert.deepEqual(new Set(few.get(one)), model.get(one) ?? new Set());
        }
      }
    }),
  );
});
