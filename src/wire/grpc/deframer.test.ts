import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "fast-check";
import { frameMessage, GrpcDeframer, GrpcWireError } from "./index.ts";

/** Returns the messages that a deframer reads from chunks, each joined. */
function messagesOf(chunks: readonly Uint8Array[], maxBytes = 1024): { messages: Buffer[]; idle: boolean } {
  const messages: Buffer[] = [];
  const deframer = new GrpcDeframer({
    maxBytes,
    onMessage: (pieces, length) => {
      const message = Buffer.concat(pieces);
      assert.equal(message.length, length);
      messages.push(message);
    },
  });
  for (const chunk of chunks) deframer.push(chunk);
  return { messages, idle: deframer.isIdle };
}

test("GrpcDeframer: messages are complete, however the stream is cut", () => {
  fc.assert(
    fc.property(
      fc.array(fc.uint8Array({ maxLength: 50 }), { maxLength: 6 }),
      fc.array(fc.nat(300), { maxLength: 20 }),
      (messages, cuts) => {
        const stream = Buffer.concat(messages.map(frameMessage));
        const at = [0, ...cuts.filter((cut) => cut <= stream.length), stream.length].toSorted((a, b) => a - b);
        const chunks = at.slice(1).map((end, index) => stream.subarray(at[index], end));
        const read = messagesOf(chunks);
        assert.deepEqual(
          read.messages,
          messages.map((message) => Buffer.from(message)),
        );
        assert.equal(read.idle, true);
      },
    ),
  );
});

test("GrpcDeframer: one byte at a time, and many messages in one chunk", () => {
  const stream = Buffer.concat([frameMessage(Uint8Array.of(1, 2, 3)), frameMessage(new Uint8Array(0))]);
  const expected = [Buffer.of(1, 2, 3), Buffer.alloc(0)];
  assert.deepEqual(messagesOf(Array.from(stream, (byte) => Uint8Array.of(byte))).messages, expected);
  assert.deepEqual(messagesOf([stream]).messages, expected);
  assert.equal(messagesOf([stream.subarray(0, 4)]).idle, false);
});

test("GrpcDeframer: payload is not copied: the views lie in the chunks", () => {
  const chunk = Buffer.concat([frameMessage(Uint8Array.of(9, 9, 9))]);
  new GrpcDeframer({
    maxBytes: 10,
    onMessage: ([piece]) => assert.equal(piece?.buffer, chunk.buffer),
  }).push(chunk);
});

test("GrpcDeframer: compressed and too large messages are errors of their own", () => {
  assert.throws(() => messagesOf([Uint8Array.of(1, 0, 0, 0, 0)]), { name: "GrpcWireError", code: "compressed" });
  assert.throws(() => messagesOf([Uint8Array.of(0, 0, 0, 4, 1)]), { code: "too-large" });
});

test("GrpcDeframer: arbitrary bytes are messages or a GrpcWireError", () => {
  fc.assert(
    fc.property(fc.array(fc.uint8Array({ maxLength: 12 }), { maxLength: 8 }), (chunks) => {
      try {
        messagesOf(chunks, 100);
      } catch (error) {
        assert.ok(error instanceof GrpcWireError, String(error));
      }
    }),
  );
});

test("GrpcDeframer: a message in tiny pieces is one view, and its memory is counted", () => {
  const message = Buffer.from(Array.from({ length: 5000 }, (_, at) => at % 251));
  const seen: { readonly pieces: number; readonly bytes: Buffer }[] = [];
  const deframer = new GrpcDeframer({
    maxBytes: 10_000,
    onMessage: (pieces) => seen.push({ pieces: pieces.length, bytes: Buffer.concat(pieces) }),
  });
  const stream = Buffer.concat([frameMessage(message), frameMessage(message.subarray(0, 9))]);
  for (const [at, byte] of stream.entries()) {
    deframer.push(Uint8Array.of(byte));
    if (at === 4 + 50) assert.equal(deframer.heldBytes, 50);
    if (at === 4 + 500) assert.equal(deframer.heldBytes, 5000);
  }
  assert.equal(deframer.heldBytes, 0);
  assert.deepEqual(seen, [
    { pieces: 1, bytes: message },
    { pieces: 9, bytes: message.subarray(0, 9) },
  ]);
});
