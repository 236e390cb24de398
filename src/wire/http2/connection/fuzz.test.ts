import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "fast-check";
import { encodeHeaderBlock, type Header } from "../hpack.ts";
import { Http2Code } from "../index.ts";
import { frame, GET, headers, OK, POST, PREFACE_BYTES, settings, uint32, windowUpdate } from "./testing/frames.ts";
import { exchange, type RecordedStream, Recorder } from "./testing/recorder.ts";

const MAX_STREAMS = 5;
const MAX_OWED = 2000;
const MAX_UNCONSUMED = 100_000;
const WINDOW = 65_535;

const id = fc.constantFrom(0, 1, 1, 1, 2, 3, 3, 5, 7, 9, 0x7fff_ffff);
const lists: readonly (readonly Header[])[] = [
  GET,
  POST,
  OK,
  [],
  [["x", "y"]],
  [["grpc-status", "0"]],
  [["X", "y"]],
  [[":status", "100"]],
];

/** Any frames, most of which end the connection. */
const wild: fc.Arbitrary<Buffer> = fc.oneof(
  fc.tuple(id, fc.constantFrom(...lists), fc.boolean()).map(([stream, list, end]) => headers(stream, list, end)),
  fc
    .tuple(id, fc.constantFrom(...lists), fc.nat(255), fc.nat(40))
    .map(([stream, list, flags, cut]) => frame(1, flags, stream, encodeHeaderBlock(list).subarray(0, cut))),
  fc
    .tuple(id, fc.nat(255), fc.uint8Array({ maxLength: 30 }))
    .map(([stream, flags, part]) => frame(9, flags, stream, part)),
  fc
    .tuple(id, fc.constantFrom(0, 0, 1, 8, 9), fc.nat(16_384))
    .map(([stream, flags, size]) => frame(0, flags, stream, Buffer.alloc(size, size & 15))),
  fc.tuple(id, fc.nat(14)).map(([stream, code]) => frame(3, 0, stream, uint32(code))),
  fc
    .tuple(id, fc.constantFrom(0, 1, 65_535, 0x7fff_ffff, 0xffff_ffff))
    .map(([stream, size]) => windowUpdate(stream, size)),
  fc
    .array(fc.tuple(fc.nat(8), fc.constantFrom(0, 1, 2, 16_384, 65_535, 0x7fff_ffff, 0xffff_ffff)), { maxLength: 4 })
    .map((values) => settings(...values)),
  fc.constantFrom(frame(7, 0, 0, Buffer.alloc(9)), frame(7, 0, 0, uint32(1, 0)), frame(2, 0, 3, Buffer.alloc(5))),
  fc
    .tuple(fc.nat(12), fc.nat(255), id, fc.uint8Array({ maxLength: 40 }))
    .map(([type, flags, stream, payload]) => frame(type, flags, stream, payload)),
  fc.uint8Array({ maxLength: 20 }).map((bytes) => Buffer.from(bytes)),
);

/** A frame of one of the streams, or of the connection: lawful, or an error of the stream. */
const mild = fc.record({
  frame: fc.constantFrom(
    "head",
    "head",
    "head",
    "data",
    "data",
    "data",
    "end",
    "trailers",
    "reset",
    "window",
    "settings",
    "ping",
    "bad",
  ),
  which: fc.nat(10),
  size: fc.nat(16_384),
});

function frameOf(role: "client" | "server", kind: string, stream: number, size: number): Buffer {
  switch (kind) {
    case "head":
      return headers(stream, role === "server" ? POST : OK, size % 5 === 0);
    case "data":
      return frame(0, size % 3 === 0 ? 8 : 0, stream, Buffer.alloc(size, size % 3 === 0 ? 5 : 0));
    case "end":
      return frame(0, 1, stream, Buffer.alloc(size % 100));
    case "trailers":
      return headers(stream, [["x", "y"]], size % 5 !== 0);
    case "reset":
      return frame(3, 0, stream, uint32(size % 14));
    case "window":
      return windowUpdate(size % 3 === 0 ? 0 : stream, 1 + size * (size % 50 === 0 ? 100_000 : 4));
    case "settings":
      return settings([4, 4 * size], [3, size % 7], [1, size % 200], [5, 16_384 + size]);
    case "ping":
      return frame(6, size & 1, 0, Buffer.alloc(8));
    default:
      return size % 2 === 0 ? windowUpdate(stream, 0) : headers(stream, [["X", "y"]], true);
  }
}

/** The user's actions between reads. */
const anyAct = fc.record({
  act: fc.constantFrom(
    "open",
    "respond",
    "data",
    "large",
    "end",
    "trailers",
    "reset",
    "reset-after-end",
    "consume",
    "take",
    "ping",
    "leave",
  ),
  which: fc.nat(10),
});

/** Does what a user may do; a call in a wrong order, which is a bug, is left out. */
function act(side: Recorder, role: "client" | "server", streams: RecordedStream[], what: string, which: number): void {
  const seen = streams[which % Math.max(1, streams.length)];
  const stream = seen?.stream;
  switch (what) {
    case "open":
      if (role === "client" && side.connection.acceptsStreams && side.connection.streams < 20) {
        const opened = side.open(POST, (which & 1) === 1);
        opened.consumes = false;
        opened.ended = (which & 1) === 1;
        opened.headed = true;
        if (which % 4 === 3) opened.resetsAt = 5000;
        streams.push(opened);
      }
      return;
    case "take":
      side.take(which * 3000);
      return;
    case "ping":
      side.connection.ping(Buffer.alloc(8));
      return;
    case "leave":
      if (which === 0) side.connection.goAway(0, "leaving");
      return;
    default:
  }
  if (seen === undefined || stream === undefined) return;
  if (what === "reset") stream.reset(Http2Code.cancel);
  else if (what === "reset-after-end") stream.resetAfterEnd();
  else if (what === "consume") stream.consume(which * 10_000);
  else if (what === "respond" && !seen.headed) {
    seen.headed = true;
    stream.sendHeaders(OK, false);
  } else if (seen.headed && !seen.ended) {
    if (what === "data") stream.sendData([Buffer.alloc(which)], false);
    if (what === "large") stream.sendData([Buffer.alloc(10), Buffer.alloc(which * 10_000)], false);
    seen.ended = what === "end" || what === "trailers";
    if (what === "end") stream.sendData([], true);
    if (what === "trailers") stream.sendHeaders([["grpc-status", "0"]], true);
  }
}

for (const role of ["client", "server"] as const) {
  test(`fuzz: a ${role} that reads any frames in any cut, and whose user does anything, never throws, stays in its bounds and ends each stream once`, () => {
    const step = fc.oneof(
      { weight: 12, arbitrary: mild },
      { weight: 10, arbitrary: anyAct },
      { weight: 1, arbitrary: wild },
    );
    let survived = 0;
    fc.assert(
      fc.property(
        fc.array(step, { minLength: 5, maxLength: 60, size: "max" }),
        fc.integer({ min: 1, max: 20_000 }),
        (steps, cut) => {
          const side = new Recorder(role, {
            maxConcurrentStreams: MAX_STREAMS,
            maxOwedBytes: MAX_OWED,
            maxUnconsumedBytes: MAX_UNCONSUMED,
            maxQueuedBytes: 300_000,
          });
          const streams: RecordedStream[] = [];
          side.answer = (seen) => {
            seen.consumes = false;
            // Some users reset within an event, in the middle of a frame.
            if (streams.length % 4 === 3) seen.resetsAt = 5000;
            streams.push(seen);
          };
          const feed = (bytes: Buffer): void => {
            for (let at = 0; at < bytes.length; at += cut) side.connection.receive(bytes.subarray(at, at + cut));
          };
          feed(Buffer.concat([role === "server" ? PREFACE_BYTES : Buffer.alloc(0), settings()]));
          side.take();
          let next = 1;
          for (const one of steps) {
            if ("act" in one) act(side, role, streams, one.act, one.which);
            else if ("frame" in one) {
              const isNew = role === "server" && one.frame === "head";
              const known = streams[one.which % Math.max(1, streams.length)]?.stream?.id ?? 0;
              if (isNew || known > 0) feed(frameOf(role, one.frame, isNew ? next : known, one.size));
              if (isNew) next += 2;
            } else feed(one);
            const { connection } = side;
            if (role === "server") assert.ok(connection.streams <= MAX_STREAMS);
            assert.ok(connection.unconsumedBytes <= MAX_UNCONSUMED + WINDOW, "unconsumed");
            assert.ok(connection.owedBytes <= MAX_OWED + 40 * 400, "owed");
            assert.ok(connection.queuedBytes <= 20 * 300_000, "queued");
            if (side.failure !== undefined) assert.equal(connection.streams, 0);
          }
          if (side.failure === undefined) survived += 1;
          // Whole frames, whatever has happened.
          side.take();
          side.connection.close("the test is over");
          for (const { closes } of streams) assert.equal(closes, 1);
          assert.deepEqual(
            [side.connection.streams, side.connection.queuedBytes, side.connection.unconsumedBytes],
            [0, 0, 0],
          );
          assert.equal(side.connection.hasOutput, false);
        },
      ),
      { numRuns: 1000 },
    );
    assert.ok(survived > 100, `${survived} connections have lived to the end`);
  });
}

test("fuzz: two connections of ours, whose users do anything lawful, never fail, and lose and mix no byte", () => {
  const anyStep = fc.record({
    act: fc.constantFrom("open", "send", "send", "send", "end", "trailers", "reset", "consume", "exchange", "settings"),
    side: fc.boolean(),
    which: fc.nat(6),
    size: fc.oneof(fc.nat(600), fc.nat(100_000)),
  });
  fc.assert(
    fc.property(
      fc.array(anyStep, { minLength: 20, maxLength: 120, size: "max" }),
      fc.integer({ min: 50, max: 70_000 }),
      fc.integer({ min: 100, max: 200_000 }),
      (steps, cut, batch) => {
        const options = { maxConcurrentStreams: 4, maxUnconsumedBytes: 150_000, maxSentFrameBytes: 20_000 };
        const [client, server] = [new Recorder("client", options), new Recorder("server", options)];
        /** Both ends of each stream, with what was sent. */
        const pairs: { near: RecordedStream; far: RecordedStream | undefined; sent: [Buffer[], Buffer[]] }[] = [];
        server.answer = (seen, list) => {
          const pair = pairs[Number(new Map(list).get("x-number"))];
          assert.ok(pair && pair.far === undefined);
          pair.far = seen;
          seen.consumes = false;
          seen.headed = true;
          seen.stream?.sendHeaders(OK, false);
        };
        let byte = 0;
        for (const { act: what, side, which, size } of steps) {
          const pair = pairs[which % Math.max(1, pairs.length)];
          const seen = side ? pair?.near : pair?.far;
          const stream = seen?.stream;
          if (what === "exchange") exchange(client, server, cut, batch);
          else if (what === "open") {
            const near = client.open([...POST, ["x-number", String(pairs.length)]]);
            near.consumes = false;
            pairs.push({ near, far: undefined, sent: [[], []] });
          }
          if (pair === undefined || seen === undefined || stream === undefined || stream.isClosed) continue;
          if (what === "consume") stream.consume(size);
          if (what === "reset" && size % 3 === 0) stream.reset(Http2Code.cancel);
          if (seen.ended) continue;
          if (what === "send" && stream.queuedBytes < 1_000_000) {
            byte = (byte + 1) & 255;
            const chunk = Buffer.alloc(size, byte);
            pair.sent[side ? 0 : 1].push(chunk);
            stream.sendData([chunk.subarray(0, size >> 1), chunk.subarray(size >> 1)], false);
          }
          seen.ended = what === "end" || what === "trailers";
          if (what === "end") stream.sendData([], true);
          if (what === "trailers") stream.sendHeaders([["grpc-status", String(which)]], true);
        }
        // Everything that is left is consumed and ended.
        for (let round = 0; client.connection.streams + server.connection.streams > 0; round += 1) {
          assert.ok(round < 1000, "the exchange does not end");
          for (const { near, far } of pairs) {
            for (const seen of [near, far]) {
              seen?.stream?.consume(1 << 30);
              if (seen === undefined || seen.ended || seen.stream?.isClosed === true) continue;
              seen.ended = true;
              seen.stream?.sendData([], true);
            }
          }
          exchange(client, server, cut, batch);
        }
        assert.deepEqual([client.failure, server.failure], [undefined, undefined]);
        for (const { near, far, sent } of pairs) {
          assert.ok(near.closes === 1 && (far === undefined || far.closes === 1));
          for (const [from, to, chunks] of [
            [near, far, sent[0]],
            [far, near, sent[1]],
          ] as const) {
            if (from === undefined || to === undefined) continue;
            const all = Buffer.concat(chunks);
            const got = to.data;
            const whole = from.fault === undefined && to.fault === undefined;
            assert.ok(whole ? got.equals(all) : got.equals(all.subarray(0, got.length)), "the bytes, in order");
          }
        }
        assert.deepEqual([client.connection.unconsumedBytes, server.connection.unconsumedBytes], [0, 0]);
        assert.deepEqual([client.connection.queuedBytes, server.connection.queuedBytes], [0, 0]);
      },
    ),
    { numRuns: 200 },
  );
});

/** A transport with room for a number of bytes, and its writer, which has one batch under way. */
class Pipe {
  readonly #room: number;
  #underWay: Uint8Array[] = [];
  #bytes = 0;
  readonly #arrived: Uint8Array[] = [];

  constructor(room: number) {
    this.#room = room;
  }

  get isWriting(): boolean {
    return this.#underWay.length > 0;
  }

  write(views: Uint8Array[]): void {
    this.#underWay = views;
  }

  /** Moves what fits. Returns true if a byte moved. */
  move(): boolean {
    let moved = false;
    for (let view = this.#underWay[0]; view !== undefined && this.#bytes < this.#room; view = this.#underWay[0]) {
      const part = view.subarray(0, this.#room - this.#bytes);
      this.#arrived.push(part);
      this.#bytes += part.length;
      moved = true;
      if (part.length < view.length) this.#underWay[0] = view.subarray(part.length);
      else this.#underWay.shift();
    }
    return moved;
  }

  read(): Uint8Array | undefined {
    const part = this.#arrived.shift();
    this.#bytes -= part?.length ?? 0;
    return part;
  }
}

test("fuzz: two sides that both send more than every window and buffer, and stop reading while they owe much, never wait for each other", () => {
  fc.assert(
    fc.property(
      fc.integer({ min: 700, max: 30_000 }),
      fc.integer({ min: 100, max: 100_000 }),
      fc.integer({ min: 1, max: 5 }),
      // Above what lawful peers of so many streams can cause: both would wait for ever below it.
      fc.integer({ min: 500, max: 2000 }),
      (room, batch, count, maxOwed) => {
        const sides = [new Recorder("client"), new Recorder("server")] as const;
        const pipes = [new Pipe(room), new Pipe(room)] as const;
        const size = 200_000;
        const ends: RecordedStream[] = [];
        const pour = (seen: RecordedStream): void => {
          ends.push(seen);
          seen.stream?.sendData([Buffer.alloc(size, ends.length)], true);
        };
        sides[1].answer = (seen) => {
          seen.stream?.sendHeaders(OK, false);
          pour(seen);
        };
        for (let at = 0; at < count; at += 1) pour(sides[0].open(POST));
        for (let moved = true; moved; ) {
          moved = false;
          for (const [at, side] of sides.entries()) {
            const [out, back] = at === 0 ? pipes : [pipes[1], pipes[0]];
            if (!out.isWriting && side.connection.hasOutput) out.write(side.connection.takeOutput(batch));
            if (out.move()) moved = true;
            if (out.isWriting && side.connection.owedBytes > maxOwed) continue;
            const bytes = back.read();
            if (bytes === undefined) continue;
            moved = true;
            side.connection.receive(bytes);
          }
        }
        assert.equal(ends.length, 2 * count);
        for (const seen of ends)
          assert.deepEqual([seen.bytes, seen.ends, seen.closes, seen.fault], [size, 1, 1, undefined]);
      },
    ),
    { numRuns: 20 },
  );
});
