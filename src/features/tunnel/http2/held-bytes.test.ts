import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "fast-check";
import { HeldBytes } from "./held-bytes.ts";

test("HeldBytes: bytes come out in order, however they were cut and whenever reading stops", () => {
  const step = fc.oneof(
    fc.uint8Array({ maxLength: 40 }),
    fc.uint8Array({ minLength: 2048, maxLength: 5000 }),
    fc.nat(4),
  );
  fc.assert(
    fc.property(fc.array(step, { maxLength: 60 }), (steps) => {
      const held = new HeldBytes();
      const pushed: Uint8Array[] = [];
      const drained: Uint8Array[] = [];
      for (const one of steps) {
        let left = typeof one === "number" ? one : 0;
        if (typeof one === "number") {
          held.drain(
            () => left-- > 0,
            (piece) => drained.push(Uint8Array.from(piece)),
          );
        } else if (one.length > 0) {
          held.push(one);
          pushed.push(one);
        }
      }
      held.drain(
        () => true,
        (piece) => drained.push(piece),
      );
      assert.equal(held.isEmpty, true);
      assert.deepEqual(Buffer.concat(drained), Buffer.concat(pushed));
    }),
  );
});

test("HeldBytes: single bytes are held in few pieces", () => {
  const held = new HeldBytes();
  for (let at = 0; at < 100_000; at += 1) held.push(Uint8Array.of(at));
  let pieces = 0;
  held.drain(
    () => true,
    () => {
      pieces += 1;
    },
  );
  assert.ok(pieces <= 8, `${pieces}`);
});
