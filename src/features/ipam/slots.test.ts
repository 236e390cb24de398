import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "fast-check";
import { MAX_BITMAP_SLOTS, Slots } from "./slots.ts";

test("Slots: no immediate reuse: with 0 and 2 of a /30 registered the next are 3, then 1; a freed 1 comes again", () => {
  const slots = new Slots(4);
  slots.mark(0);
  slots.mark(2);
  slots.continueAfter(2);
  assert.equal(slots.take(), 3);
  assert.equal(slots.take(), 1);
  assert.equal(slots.take(), undefined);
  slots.release(1);
  assert.equal(slots.take(), 1);
});

test("Slots: releasing twice and marking twice are harmless, outside offsets are refused", () => {
  const slots = new Slots(8);
  slots.mark(5);
  slots.mark(5);
  assert.equal(slots.used, 1);
  slots.release(5);
  slots.release(5);
  assert.equal(slots.used, 0);
  for (const offset of [-1, 8, 0.5]) assert.throws(() => slots.mark(offset), RangeError);
});

test("Slots: agrees with a naive model, as bitmap and as set", () => {
  const command = fc.oneof(fc.constant("take" as const), fc.nat(255));
  fc.assert(
    fc.property(
      fc.integer({ min: 1, max: 256 }),
      fc.boolean(),
      fc.array(command, { maxLength: 300 }),
      (size, sparse, steps) => {
        // A sparse block behaves as a dense one as long as it does not wrap.
        const capacity = sparse ? MAX_BITMAP_SLOTS + 1 : size;
        const slots = new Slots(capacity);
        const taken = new Set<number>();
        let last = -1;
        for (const step of steps) {
          if (step === "take") {
            let expected: number | undefined;
            for (let tried = 1; tried <= Math.min(capacity, 600) && expected === undefined; tried += 1) {
              const offset = (last + tried) % capacity;
              if (!taken.has(offset)) expected = offset;
            }
            assert.equal(slots.take(), expected);
            if (expected !== undefined) {
              taken.add(expected);
              last = expected;
            }
          } else if (step < capacity) {
            taken.delete(step);
            slots.release(step);
          }
          assert.equal(slots.used, taken.size);
        }
      },
    ),
  );
});

test("Slots: a block of 2^64 addresses costs no memory and counts exactly", () => {
  const slots = new Slots(1n << 64n);
  assert.equal(slots.take(), 0);
  assert.equal(slots.take(), 1);
  assert.equal(slots.used, 2);
  assert.equal(slots.capacity, Number.MAX_SAFE_INTEGER);
});
