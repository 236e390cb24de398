import assert from "node:assert/strict";
import { test } from "node:test";
import { setFlagsFromString } from "node:v8";
import { runInNewContext } from "node:vm";
import fc from "fast-check";
import { ByteQueue } from "./index.ts";

test("ByteQueue: whatever is pushed and taken, the bytes come out in order and as views of what went in", () => {
  const step = fc.oneof(
    fc.record({ push: fc.uint8Array({ maxLength: 300 }) }),
    fc.record({ take: fc.double({ min: 0, max: 1, noNaN: true }) }),
    fc.record({ next: fc.integer({ min: 1, max: 400 }) }),
  );
  fc.assert(
    fc.property(fc.array(step, { maxLength: 200 }), (steps) => {
      const queue = new ByteQueue();
      const buffers = new Set<ArrayBufferLike>();
      let [pushed, taken] = [Buffer.alloc(0), Buffer.alloc(0)];
      for (const one of steps) {
        if ("push" in one) {
          buffers.add(one.push.buffer);
          pushed = Buffer.concat([pushed, one.push]);
          queue.push(one.push);
        } else if ("next" in one) {
          if (queue.length === 0) continue;
          const part = queue.next(one.next);
          assert.ok(part.length > 0 && part.length <= one.next && buffers.has(part.buffer));
          taken = Buffer.concat([taken, part]);
        } else {
          const out: Uint8Array[] = [];
          queue.take(Math.floor(one.take * queue.length), out);
          assert.ok(out.every(({ buffer }) => buffers.has(buffer)));
          taken = Buffer.concat([taken, ...out]);
        }
        assert.equal(queue.length, pushed.length - taken.length);
      }
      assert.deepEqual(taken, pushed.subarray(0, taken.length));
    }),
  );
  assert.throws(() => new ByteQueue().take(1, []), /1 bytes of 1 are not in the queue/);
  assert.throws(() => new ByteQueue().next(1), /1 bytes of 1 are not in the queue/);
});

test("ByteQueue: taken bytes are not held, even while others wait behind them", () => {
  setFlagsFromString("--expose-gc");
  const collect: () => void = runInNewContext("gc");
  const queue = new ByteQueue();
  const held: WeakRef<ArrayBufferLike>[] = [];
  const fill = (): void => {
    for (let at = 0; at < 40; at += 1) {
      const bytes = new Uint8Array(1 << 16);
      held.push(new WeakRef(bytes.buffer));
      queue.push(bytes);
    }
    queue.take(39 << 16, []);
  };
  fill();
  return new Promise<void>((resolve) => setImmediate(resolve)).then(() => {
    collect();
    const left = held.filter((one) => one.deref() !== undefined).length;
    assert.equal(queue.length, 1 << 16);
    assert.equal(left, 1);
  });
});
