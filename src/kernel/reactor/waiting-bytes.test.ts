import assert from "node:assert/strict";
import { randomBytes, randomInt } from "node:crypto";
import { test } from "node:test";
import { WaitingBytes } from "./waiting-bytes.ts";

test("WaitingBytes: bytes keep their order, however they come and go", () => {
  const SIZES = [1, 2, 7, 100, 4000, 16_383, 16_384, 16_385, 100_000];
  for (let round = 0; round < 200; round += 1) {
    const waiting = new WaitingBytes();
    let left = Buffer.alloc(0);
    for (let step = 0; step < 50; step += 1) {
      if (randomInt(3) > 0) {
        const chunk = randomBytes(SIZES[randomInt(SIZES.length)] ?? 1);
        const start = randomInt(chunk.length);
        left = Buffer.concat([left, chunk.subarray(start)]);
        waiting.push(chunk, start, chunk.length);
        chunk.fill(0);
      } else {
        const next = waiting.next() ?? Buffer.alloc(0);
        assert.deepEqual(Buffer.from(next), left.subarray(0, next.length));
        const removed = next.length === 0 || randomInt(2) > 0 ? next.length : randomInt(next.length);
        waiting.remove(removed);
        left = left.subarray(removed);
      }
      assert.equal(waiting.length, left.length);
      assert.equal(waiting.next() === undefined, left.length === 0);
    }
  }
});

test("WaitingBytes: single bytes are sent in blocks", () => {
  const waiting = new WaitingBytes();
  for (let at = 0; at < 100_000; at += 1) waiting.push(Uint8Array.of(at), 0, 1);
  let sends = 0;
  let expected = 0;
  for (let next = waiting.next(); next !== undefined; next = waiting.next()) {
    for (const byte of next) {
      assert.equal(byte, expected % 256);
      expected += 1;
    }
    waiting.remove(next.length);
    sends += 1;
  }
  assert.deepEqual([expected, sends], [100_000, 7]);
});
