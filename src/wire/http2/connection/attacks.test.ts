import assert from "node:assert/strict";
import { test } from "node:test";
import { FakeClock } from "#base/clock";
import { encodeHeaderBlock, type Header } from "../hpack.ts";
import { Http2Code } from "../index.ts";
import { MAX_WHOLE_BYTES } from "./frame-reader.ts";
import { Flag, FrameType, MAX_WINDOW_BYTES, Setting } from "./frames.ts";
import { MAX_BLOCK_BYTES, MAX_BLOCK_FRAMES } from "./header-block.ts";
import {
  frame,
  framesOf,
  GET,
  headers,
  OK,
  POST,
  type RawFrame,
  settings,
  uint32,
  windowUpdate,
} from "./testing/frames.ts";
import { openClient, openServer, type Recorder } from "./testing/recorder.ts";

const CALM = Http2Code.enhanceYourCalm;
const data = (stream: number, bytes: Uint8Array, flags = 0): Buffer => frame(FrameType.data, flags, stream, bytes);
const ping = frame(FrameType.ping, 0, 0, Buffer.alloc(8));

/** Feeds `next` until the connection fails or it was called `times` times; returns the number of calls. */
function flood(victim: Recorder, times: number, next: (at: number) => Buffer, read: boolean): number {
  for (let at = 0; at < times; at += 1) {
    victim.connection.receive(next(at));
    if (victim.failure !== undefined) return at + 1;
    if (read) victim.connection.takeOutput(Number.POSITIVE_INFINITY);
  }
  return times;
}

const resetsOf = (frames: readonly RawFrame[]): number[] =>
  frames.filter(({ type }) => type === FrameType.rstStream).map(({ payload }) => payload.readUInt32BE(0));

test("rapid reset (CVE-2023-44487): 1,000 requests that are reset at once pass, more end the connection; 33 a second pass", async () => {
  const server = openServer();
  const attack = (at: number): Buffer =>
    Buffer.concat([headers(2 * at + 1, POST), frame(FrameType.rstStream, 0, 2 * at + 1, uint32(8))]);
  assert.equal(flood(server, 5000, attack, true), 1001);
  assert.equal(server.failure?.code, CALM);
  assert.ok(server.requests.every(({ seen }) => seen.closes === 1));
  const slow = openServer();
  for (let second = 0; second < 100; second += 1) {
    assert.equal(
      flood(slow, 33, (at) => attack(33 * second + at), true),
      33,
    );
    await slow.clock.advance(1000);
  }
});

test("rapid reset: a client that resets after the whole answer, as grpc-go does, is no attacker", () => {
  const server = openServer();
  server.answer = (seen) => seen.stream?.sendHeaders(OK, true);
  const call = (at: number): Buffer =>
    Buffer.concat([headers(2 * at + 1, POST), frame(FrameType.rstStream, 0, 2 * at + 1, uint32(8))]);
  assert.equal(flood(server, 5000, call, true), 5000);
});

test("MadeYouReset (CVE-2025-8671): resets that the peer provokes from us count as its own", () => {
  for (const provoke of [
    (stream: number) => windowUpdate(stream, 0),
    (stream: number) => windowUpdate(stream, MAX_WINDOW_BYTES),
    (stream: number) => headers(stream, GET),
    (stream: number) => Buffer.concat([data(stream, Buffer.alloc(0), 1), data(stream, Buffer.alloc(1))]),
    (stream: number) => headers(stream, [["X", "y"]], true),
  ]) {
    const server = openServer();
    const attack = (at: number): Buffer => Buffer.concat([headers(2 * at + 1, POST), provoke(2 * at + 1)]);
    assert.equal(flood(server, 5000, attack, true), 1001);
    assert.equal(server.failure?.code, CALM);
    assert.equal(server.connection.streams, 0);
  }
});

test("refused streams: requests above the limit of streams, or malformed, count as resets", () => {
  const full = openServer({ maxConcurrentStreams: 1 });
  full.feed(headers(1, POST));
  assert.equal(
    flood(full, 5000, (at) => headers(2 * at + 3, POST), true),
    1001,
  );
  const malformed = openServer();
  assert.equal(
    flood(malformed, 5000, (at) => headers(2 * at + 1, [["x", "y"]]), true),
    1001,
  );
  assert.equal(malformed.requests.length, 0);
});

test("CONTINUATION flood (2024): a block has at most 64 KiB and 64 frames, empty ones too", () => {
  for (const size of [0, 1, 1000, 16_384]) {
    const server = openServer();
    server.feed(frame(FrameType.headers, 0, 1, encodeHeaderBlock(GET)));
    const frames = flood(server, 1000, () => frame(FrameType.continuation, 0, 1, Buffer.alloc(size)), false);
    assert.ok(frames <= MAX_BLOCK_FRAMES && frames * size <= MAX_BLOCK_BYTES + 16_384, `${frames} of ${size}`);
    assert.equal(server.failure?.code, CALM);
  }
});

test("PING flood (CVE-2019-9512): 1,000 answers wait for a peer that reads none, then the connection ends", () => {
  const server = openServer();
  assert.equal(
    flood(server, 5000, () => ping, false),
    1001,
  );
  assert.equal(server.failure?.code, CALM);
  assert.ok(server.connection.owedBytes < 20_000);
});

test("PING flood: one that reads the answers may send 10,000 at once and 1,000 a second", async () => {
  const server = openServer();
  assert.equal(
    flood(server, 9_900, () => ping, true),
    9_900,
  );
  await server.clock.advance(1000);
  assert.equal(
    flood(server, 1000, () => ping, true),
    1000,
  );
  assert.ok(flood(server, 5000, () => ping, true) < 200);
  assert.equal(server.failure?.code, CALM);
});

test("SETTINGS flood (CVE-2019-9515): answers are bounded, and frames cost as many as the streams that they change", () => {
  const unread = openServer();
  assert.equal(
    flood(unread, 5000, () => settings(), false),
    1001,
  );
  assert.equal(unread.failure?.code, CALM);
  const server = openServer({ maxConcurrentStreams: 1600 });
  for (let at = 0; at < 1600; at += 1) server.feed(headers(2 * at + 1, POST));
  const frames = flood(server, 5000, (at) => settings([Setting.initialWindowSize, at]), true);
  assert.ok(frames <= 101, `${frames} frames for 1,600 streams`);
});

test("SETTINGS flood: thousands of values in one frame change each stream once", () => {
  const server = openServer({ maxConcurrentStreams: 1000 });
  for (let at = 0; at < 1000; at += 1) server.feed(headers(2 * at + 1, POST));
  const values = Array.from({ length: 2730 }, (_, at) => [Setting.initialWindowSize, at] as const);
  const sent = server.feed(settings(...values));
  assert.equal(sent.length, 1);
  assert.equal(server.failure, undefined);
});

test("RST_STREAM flood (CVE-2019-9514): answers to frames of closed streams are bounded", () => {
  const server = openServer();
  server.answer = (seen) => seen.stream?.sendHeaders(OK, true);
  for (let at = 0; at < 3000; at += 1) server.feed(headers(2 * at + 1, GET, true));
  const frames = flood(server, 5000, (at) => data(2 * at + 1, Buffer.alloc(0), 1), false);
  assert.equal(frames, 1001);
  assert.equal(server.failure?.code, CALM);
});

test("empty frames (CVE-2019-9518): DATA and HEADERS without content are bounded", () => {
  const server = openServer();
  server.feed(headers(1, POST));
  assert.equal(
    flood(server, 20_000, () => data(1, Buffer.alloc(0)), true),
    10_001,
  );
  assert.equal(server.failure?.code, CALM);
  const padded = openServer();
  padded.feed(headers(1, POST));
  const frames = flood(padded, 20_000, () => data(1, Buffer.from([0]), Flag.padded), true);
  assert.ok(frames <= 10_001, "padding is no content");
  const empty = openServer();
  assert.equal(
    flood(empty, 5000, (at) => frame(FrameType.headers, 5, 2 * at + 1), true),
    1001,
  );
});

test("PRIORITY churn (CVE-2019-9513), unknown frames, WINDOW_UPDATE and RST_STREAM of closed streams: bounded, and nothing is kept", () => {
  for (const next of [
    (at: number) => frame(FrameType.priority, 0, 2 * at + 1, Buffer.alloc(5)),
    (at: number) => frame(100, at & 255, at, Buffer.alloc(at & 63)),
    () => windowUpdate(0, 1),
    () => windowUpdate(1, 1),
    () => windowUpdate(3, 1),
    () => frame(FrameType.rstStream, 0, 3, uint32(8)),
    () => frame(FrameType.ping, Flag.ack, 0, Buffer.alloc(8)),
    () => frame(FrameType.goAway, 0, 0, Buffer.alloc(8)),
  ]) {
    const server = openServer();
    server.answer = (seen) => seen.stream?.sendHeaders(OK, seen.stream.id === 3);
    server.feed(headers(1, POST), headers(3, GET, true));
    const frames = flood(server, 20_000, next, true);
    assert.ok(frames > 9900 && frames <= 10_001, `${frames}`);
    assert.equal(server.failure?.code, CALM);
    assert.ok(server.connection.owedBytes < 1000);
  }
});

test("WINDOW_UPDATE: a peer that takes data may send as many as it likes", () => {
  const server = openServer();
  server.feed(headers(1, GET, true));
  const { stream } = server.requests[0]?.seen ?? {};
  stream?.sendHeaders(OK, false);
  for (let at = 0; at < 20_000; at += 1) {
    stream?.sendData([Buffer.alloc(100)], false);
    server.feed(windowUpdate(0, 100), windowUpdate(1, 100));
  }
  assert.equal(server.failure, undefined);
});

test("informational responses without end are bounded", () => {
  const client = openClient();
  client.open(POST);
  const frames = flood(client, 20_000, () => headers(1, [[":status", "100"]]), true);
  assert.ok(frames <= 10_001);
  assert.equal(client.failure?.code, CALM);
});

test("window overflow: neither window grows above 2^31-1, by any number of updates", () => {
  const server = openServer();
  server.feed(headers(1, POST));
  const ofStream = flood(server, 10, () => windowUpdate(1, 0x4000_0000), true);
  assert.equal(server.requests[0]?.seen.fault?.code, Http2Code.flowControlError);
  assert.equal(ofStream, 10);
  assert.equal(
    flood(server, 10, () => windowUpdate(0, 0x4000_0000), true),
    2,
  );
  assert.equal(server.failure?.code, Http2Code.flowControlError);
});

test("HPACK bomb: a small block of references to a large entry ends its stream only, and the table stays right", () => {
  const server = openServer({ maxHeaderListBytes: 20_000 });
  const entry = Buffer.concat([
    Buffer.from("400161", "hex"),
    Buffer.from([0x7f, 0xa1, 0x1e]),
    Buffer.alloc(4000, 0x62),
  ]);
  const bomb = Buffer.concat([encodeHeaderBlock(GET), entry, Buffer.alloc(12_000, 0xbe)]);
  const sent = server.feed(frame(FrameType.headers, 5, 1, bomb));
  assert.deepEqual(resetsOf(sent), [CALM]);
  assert.equal(server.requests.length, 0);
  const next = Buffer.concat([encodeHeaderBlock(GET), Buffer.from([0xbe])]);
  server.feed(frame(FrameType.headers, 5, 3, next));
  assert.equal(server.requests[0]?.headers.at(-1)?.[1].length, 4000);
  assert.equal(server.failure, undefined);
});

test("HPACK bomb: a table larger than announced, and changes of it in the middle of a block, are COMPRESSION_ERROR", () => {
  for (const block of ["3fe21f", "8220"]) {
    const server = openServer();
    server.feed(frame(FrameType.headers, 5, 1, Buffer.from(block, "hex")));
    assert.equal(server.failure?.code, Http2Code.compressionError);
  }
  const churn = Buffer.concat([
    ...Array.from({ length: 2000 }, () => Buffer.from("203fe11f", "hex")),
    encodeHeaderBlock(GET),
  ]);
  const server = openServer();
  server.feed(frame(FrameType.headers, 5, 1, churn));
  assert.equal(server.requests.length, 1, "changes at the start of a block cost their bytes only");
});

test("0-length header leak (CVE-2019-9516): empty names and values are refused, and each header counts 32 bytes", () => {
  const server = openServer();
  const names = Array.from({ length: 100 }, (): Header => ["", ""]);
  assert.deepEqual(resetsOf(server.feed(headers(1, [...GET, ...names], true))), [Http2Code.protocolError]);
  const many = Array.from({ length: 4000 }, (): Header => ["x", ""]);
  assert.deepEqual(resetsOf(server.feed(headers(3, [...GET, ...many], true))), [CALM]);
});

test("slow reading (CVE-2019-9511, -9517): a peer with open windows that reads nothing holds no more than one stream's bound", () => {
  const server = openServer({ maxQueuedBytes: 200_000, sendMarkBytes: 50_000 });
  server.feed(settings([Setting.initialWindowSize, MAX_WINDOW_BYTES]), headers(1, GET, true));
  const seen = server.requests[0]?.seen;
  seen?.stream?.sendHeaders(OK, false);
  while ((seen?.stream?.sendable ?? 0) > 0) seen?.stream?.sendData([Buffer.alloc(10_000)], false);
  assert.equal(seen?.stream?.queuedBytes, 50_000);
  for (let at = 0; at < 16; at += 1) seen?.stream?.sendData([Buffer.alloc(10_000)], false);
  assert.deepEqual(
    [seen?.closes, seen?.fault?.code],
    [1, CALM],
    "a user that does not look at sendable loses the stream",
  );
  assert.equal(server.connection.queuedBytes, 0);
});

test("slow reading: requests whose answers are not read end the connection at the bound of what is owed", () => {
  const server = openServer({ maxOwedBytes: 10_000 });
  server.answer = (seen) =>
    seen.stream?.sendHeaders([...OK, ["x-fill", "y".repeat(200)], ["date", "z".repeat(90)]], true);
  const requests = flood(server, 5000, (at) => headers(2 * at + 1, GET, true), false);
  assert.ok(requests < 200);
  assert.equal(server.failure?.code, CALM);
  assert.ok(server.connection.owedBytes < 11_000);
});

test("small windows (CVE-2019-9511): a window of one byte gives one frame a byte, and costs no memory", () => {
  const server = openServer({}, [Setting.initialWindowSize, 1]);
  server.feed(headers(1, GET, true));
  const { stream } = server.requests[0]?.seen ?? {};
  stream?.sendHeaders(OK, false);
  stream?.sendData([Buffer.alloc(1000)], true);
  server.take();
  for (let left = 999; left > 0; left -= 1) {
    const sent = server.feed(windowUpdate(1, 1));
    assert.deepEqual(
      sent.map(({ payload }) => payload.length),
      [1],
    );
    assert.ok(server.connection.owedBytes < 100);
  }
});

test("data dribble: one byte a frame, at a lawful rate, arrives, gives credit in batches, and is answered by nothing else", async () => {
  const clock = new FakeClock();
  const server = openServer({ clock });
  server.feed(headers(1, POST));
  const sent: RawFrame[] = [];
  for (let second = 0; second < 40; second += 1) {
    for (let at = 0; at < 1000; at += 1) {
      server.connection.receive(data(1, Buffer.from("x")));
      sent.push(...framesOf(Buffer.concat(server.connection.takeOutput(1 << 20))));
    }
    await clock.advance(1000);
  }
  assert.equal(server.requests[0]?.seen.bytes, 40_000);
  assert.deepEqual(
    sent.map(({ type, stream, payload }) => [type, stream, payload.readUInt32BE(0)]),
    [
      [FrameType.windowUpdate, 1, 32_768],
      [FrameType.windowUpdate, 0, 32_768],
    ],
  );
});

test("unread data: what a user does not consume is bounded by the streams' windows and the connection's", () => {
  const server = openServer({ maxUnconsumedBytes: 200_000, maxConcurrentStreams: 1000 });
  server.answer = (seen) => {
    seen.consumes = false;
  };
  for (let stream = 1; server.failure === undefined && stream < 1000; stream += 2) {
    server.feed(headers(stream, POST));
    for (let at = 0; at < 3; at += 1) server.feed(data(stream, Buffer.alloc(16_384)));
  }
  assert.equal(server.failure?.code, Http2Code.flowControlError);
  const held = server.requests.reduce((sum, { seen }) => sum + seen.bytes, 0);
  assert.ok(held <= 200_000 + 65_535, `${held} bytes`);
});

test("oversized frames: a frame that is kept whole has at most 64 KiB, and is not allocated before it comes", () => {
  for (const type of [FrameType.headers, FrameType.settings, FrameType.goAway, FrameType.continuation]) {
    const server = openServer({ maxFrameBytes: 1 << 20 });
    const bytes = frame(type, 0, type === FrameType.headers ? 1 : 0, Buffer.alloc(MAX_WHOLE_BYTES + 1));
    server.connection.receive(bytes.subarray(0, 9));
    assert.equal(server.failure?.code, CALM);
  }
});

test("streams: a peer may open no more than announced, whatever it sends", () => {
  const server = openServer({ maxConcurrentStreams: 10 });
  for (let at = 0; at < 500; at += 1) server.feed(headers(2 * at + 1, POST));
  assert.equal(server.connection.streams, 10);
  assert.equal(server.requests.length, 10);
});

test("data dribble: one byte a frame without end ends the connection; a message of gRPC a frame does not", () => {
  const server = openServer();
  server.feed(headers(1, POST));
  for (let at = 0; at < 20_000 && server.failure === undefined; at += 1) server.feed(data(1, Buffer.from("x")));
  assert.equal(server.failure?.code, Http2Code.enhanceYourCalm);
  const lawful = openServer();
  lawful.feed(headers(1, POST));
  for (let at = 0; at < 40_000; at += 1) lawful.feed(data(1, Buffer.alloc(8)));
  assert.equal(lawful.failure, undefined);
  assert.equal(lawful.requests[0]?.seen.bytes, 320_000);
});

test("receive: whatever the bound of its work is, the same comes out as without, in pieces", () => {
  const bytes = Buffer.concat([
    headers(1, POST),
    ...Array.from({ length: 50 }, (_, at) => data(1, Buffer.alloc(1 + 200 * at, at))),
    ping,
    headers(3, POST),
    data(3, Buffer.alloc(0), Flag.endStream),
    data(1, Buffer.alloc(40), Flag.endStream),
  ]);
  const whole = openServer({ streamWindowBytes: 1 << 20, connectionWindowBytes: 1 << 20, maxFrameBytes: 65_536 });
  whole.connection.receive(bytes);
  const wanted = whole.requests.map(({ seen }) => [seen.bytes, seen.ends]);
  for (const maxWork of [0.1, 1, 3, 1000]) {
    const server = openServer({ streamWindowBytes: 1 << 20, connectionWindowBytes: 1 << 20, maxFrameBytes: 65_536 });
    let [work, pieces] = [server.connection.receive(bytes, maxWork), 1];
    for (; server.connection.hasUnread; pieces += 1) work += server.connection.proceed(maxWork);
    assert.deepEqual(
      server.requests.map(({ seen }) => [seen.bytes, seen.ends]),
      wanted,
    );
    assert.ok(work > 50 + 32, `${work}`);
    assert.equal(pieces > 20, maxWork < 4, `${pieces} pieces of ${maxWork}`);
  }
});
