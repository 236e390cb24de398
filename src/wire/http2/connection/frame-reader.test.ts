import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "fast-check";
import { FrameReader, MAX_WHOLE_BYTES } from "./frame-reader.ts";
import { Flag, FrameType, Http2Code } from "./frames.ts";
import { frame, PREFACE_BYTES, settings, uint32 } from "./testing/frames.ts";

/** The frames of bytes that are fed in these parts, as text, DATA in one piece; the fault is the last line. */
function read(parts: readonly Uint8Array[], preface = false, maxFrameBytes = 16_384): string[] {
  const reader = new FrameReader({ maxFrameBytes, preface });
  const lines: string[] = [];
  let data = Buffer.alloc(0);
  for (const part of parts) {
    reader.feed(part);
    for (let more = true; more; ) {
      const event = reader.next();
      const head = `${reader.type} ${reader.flags} ${reader.stream}`;
      if (event === "data") data = Buffer.concat([data, reader.payload]);
      else if (event === "data-head") data = Buffer.alloc(0);
      else if (event === "data-end") lines.push(`${head} ${data.toString("hex")} +${reader.padding}`);
      else if (event === "frame") lines.push(`${head} ${Buffer.from(reader.payload).toString("hex")}`);
      else more = false;
      if (event === "fault") {
        lines.push(`fault ${reader.faultCode}`);
        return lines;
      }
    }
  }
  return lines;
}

test("FrameReader: a stream of all types gives the same frames, cut at every byte", () => {
  const bytes = Buffer.concat([
    PREFACE_BYTES,
    settings([4, 70_000], [5, 20_000]),
    frame(FrameType.headers, 4, 1, Buffer.from("828684", "hex")),
    frame(FrameType.priority, 0, 3, Buffer.alloc(5)),
    frame(FrameType.data, 0, 1, Buffer.from("hello")),
    frame(FrameType.data, Flag.padded, 1, Buffer.from("\x02hi\0\0")),
    frame(FrameType.data, Flag.padded, 1, Buffer.from("\x00hi")),
    frame(FrameType.data, Flag.padded, 1, Buffer.from("\x03\0\0\0")),
    frame(FrameType.data, 1, 1),
    frame(200, 255, 5, Buffer.alloc(30)),
    frame(FrameType.rstStream, 0, 1, uint32(8)),
    frame(FrameType.ping, 0, 0, Buffer.from("12345678")),
    frame(FrameType.windowUpdate, 0, 0, uint32(1)),
    frame(FrameType.goAway, 0, 0, Buffer.concat([uint32(1, 0), Buffer.from("bye")])),
  ]);
  const whole = read([bytes], true);
  assert.deepEqual(whole.slice(3, 8), [
    "0 0 1 68656c6c6f +0",
    "0 8 1 6869 +3",
    "0 8 1 6869 +1",
    "0 8 1  +4",
    "0 1 1  +0",
  ]);
  assert.equal(whole.length, 13);
  for (let at = 0; at <= bytes.length; at += 1) {
    assert.deepEqual(read([bytes.subarray(0, at), bytes.subarray(at)], true), whole, `cut at ${at}`);
  }
  assert.deepEqual(
    read(
      Array.from(bytes, (byte) => Uint8Array.of(byte)),
      true,
    ),
    whole,
  );
});

test("FrameReader: DATA is a view of what was fed, and is not waited for", () => {
  const reader = new FrameReader({ maxFrameBytes: 16_384, preface: false });
  const bytes = frame(FrameType.data, 0, 1, Buffer.alloc(1000)).subarray(0, 500);
  reader.feed(bytes);
  assert.equal(reader.next(), "data-head");
  assert.equal(reader.next(), "data");
  assert.equal(reader.payload.length, 491);
  assert.equal(reader.payload.buffer, bytes.buffer);
  assert.equal(reader.next(), "more");
});

test("FrameReader: the reserved bit of the stream is ignored (RFC 9113 section 4.1)", () => {
  const bytes = frame(FrameType.data, 0, 1, Buffer.from("x"));
  bytes.writeUInt8(0x80, 5);
  assert.deepEqual(read([bytes]), ["0 0 1 78 +0"]);
});

test("FrameReader: sizes that a frame may not have (RFC 9113 sections 4.2 and 6)", () => {
  for (const [type, length] of [
    [FrameType.priority, 4],
    [FrameType.priority, 6],
    [FrameType.rstStream, 3],
    [FrameType.rstStream, 5],
    [FrameType.ping, 7],
    [FrameType.windowUpdate, 5],
    [FrameType.data, 16_385],
    [FrameType.headers, 16_385],
    [77, 16_385],
  ] as const) {
    assert.deepEqual(read([frame(type, 0, 1, Buffer.alloc(length))]), [`fault ${Http2Code.frameSizeError}`]);
  }
  assert.deepEqual(read([frame(FrameType.data, Flag.padded, 1)]), [`fault ${Http2Code.frameSizeError}`]);
  assert.deepEqual(read([frame(FrameType.data, Flag.padded, 1, Buffer.from([1]))]), [
    `fault ${Http2Code.protocolError}`,
  ]);
  assert.deepEqual(read([frame(FrameType.headers, 0, 1, Buffer.alloc(MAX_WHOLE_BYTES + 1))], false, 1 << 20), [
    `fault ${Http2Code.enhanceYourCalm}`,
  ]);
});

test("FrameReader: a wrong preface is refused at its first wrong byte (RFC 9113 section 3.4)", () => {
  for (let at = 0; at < PREFACE_BYTES.length; at += 1) {
    const bytes = Buffer.from(PREFACE_BYTES);
    bytes[at] = 0;
    assert.deepEqual(read([bytes.subarray(0, at)], true), []);
    assert.deepEqual(read([bytes.subarray(0, at + 1)], true), [`fault ${Http2Code.protocolError}`]);
  }
});

test("FrameReader: any bytes in any parts give the same events, and never an exception", () => {
  const any = fc.oneof(
    fc.uint8Array({ maxLength: 40 }),
    fc
      .tuple(fc.nat(11), fc.nat(255), fc.nat(5), fc.uint8Array({ maxLength: 300 }))
      .map(([type, flags, stream, payload]) => frame(type, flags, stream, payload)),
  );
  fc.assert(
    fc.property(fc.array(any, { maxLength: 10 }), fc.array(fc.nat(3000), { maxLength: 20 }), (pieces, cuts) => {
      const bytes = Buffer.concat(pieces);
      const ends = [...cuts.filter((cut) => cut < bytes.length).sort((a, b) => a - b), bytes.length];
      const parts = ends.map((end, at) => bytes.subarray(at === 0 ? 0 : ends[at - 1], end));
      assert.deepEqual(read(parts), read([bytes]));
    }),
    { numRuns: 1000 },
  );
});
