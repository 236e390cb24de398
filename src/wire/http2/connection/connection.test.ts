import assert from "node:assert/strict";
import { test } from "node:test";
import { encodeHeaderBlock } from "../hpack.ts";
import { Http2Code, type Http2Options } from "../index.ts";
import { Flag, FrameType, Setting } from "./frames.ts";
import {
  blockDecoder,
  frame,
  framesOf,
  GET,
  headers,
  OK,
  POST,
  PREFACE_BYTES,
  type RawFrame,
  settings,
  uint32,
  windowUpdate,
} from "./testing/frames.ts";
import { exchange, openClient, openServer, type RecordedStream, Recorder } from "./testing/recorder.ts";

/** The code of the GOAWAY among frames; `undefined` without one. */
const goAwayOf = (frames: readonly RawFrame[]): number | undefined =>
  frames.find(({ type }) => type === FrameType.goAway)?.payload.readUInt32BE(4);

/** `stream: code` of each RST_STREAM among frames. */
const resetsOf = (frames: readonly RawFrame[]): string[] =>
  frames
    .filter(({ type }) => type === FrameType.rstStream)
    .map((one) => `${one.stream}: ${one.payload.readUInt32BE(0)}`);

/** The sum of WINDOW_UPDATEs of a stream. */
const creditOf = (frames: readonly RawFrame[], stream: number): number =>
  frames
    .filter((one) => one.type === FrameType.windowUpdate && one.stream === stream)
    .reduce((sum, { payload }) => sum + payload.readUInt32BE(0), 0);

const data = (stream: number, bytes: Uint8Array | string, flags = 0): Buffer =>
  frame(FrameType.data, flags, stream, Buffer.from(bytes));

/** Bytes of DATA among frames. */
const dataOf = (frames: readonly RawFrame[], stream: number): Buffer =>
  Buffer.concat(
    frames.filter((one) => one.type === FrameType.data && one.stream === stream).map(({ payload }) => payload),
  );

/** Feeds an open server and checks that the connection fails with a code, once and for good. */
function assertFails(code: number, ...bytes: readonly Buffer[]): void {
  const server = openServer();
  server.answer = (seen) => {
    seen.consumes = false;
  };
  const sent = server.feed(...bytes);
  assert.equal(goAwayOf(sent), code);
  assert.equal(server.failure?.code, code);
  for (const { seen } of server.requests) assert.equal(seen.closes, 1);
  assert.deepEqual(server.feed(headers(99, GET, true), frame(FrameType.ping, 0, 0, Buffer.alloc(8))), []);
}

/** Feeds an open server, which stays open, and checks the streams that it resets. */
function assertResets(resets: readonly string[], ...bytes: readonly Buffer[]): Recorder {
  const server = openServer();
  const sent = server.feed(...bytes);
  assert.equal(server.failure, undefined);
  assert.deepEqual(resetsOf(sent), resets);
  return server;
}

function firstOf(server: Recorder): RecordedStream {
  const seen = server.requests[0]?.seen;
  assert.ok(seen, "there is a request");
  return seen;
}

test("3.4 preface: a client sends it with SETTINGS, a server SETTINGS, and both announce their windows", () => {
  const options = { streamWindowBytes: 100_000, connectionWindowBytes: 200_000, maxFrameBytes: 20_000 };
  const [client, server] = [new Recorder("client", options), new Recorder("server", options)];
  assert.equal(client.connection.hasOutput, true);
  const bytes = Buffer.concat(client.connection.takeOutput(0));
  assert.ok(bytes.subarray(0, 24).equals(PREFACE_BYTES));
  const text = (frames: readonly RawFrame[]) => frames.map(({ type, payload }) => `${type} ${payload.toString("hex")}`);
  const windows = "0004000186a0000500004e20000600010000";
  assert.deepEqual(text(framesOf(bytes)), [`4 000200000000${windows}`, "8 00020d41"]);
  assert.deepEqual(text(server.take()), [`4 000300000064${windows}`, "8 00020d41"]);
});

test("3.4 preface: a server refuses other bytes, and a first frame that is not SETTINGS; so does a client", () => {
  const server = new Recorder("server");
  server.feed(Buffer.from("GET / HTTP/1.1\r\n"));
  assert.equal(server.failure?.code, Http2Code.protocolError);
  for (const first of [
    frame(FrameType.ping, 0, 0, Buffer.alloc(8)),
    frame(FrameType.settings, Flag.ack, 0),
    headers(1, GET, true),
    data(1, "x"),
    frame(99, 0, 0),
  ]) {
    const one = new Recorder("server");
    assert.equal(goAwayOf(one.feed(PREFACE_BYTES, first)), Http2Code.protocolError);
    const client = new Recorder("client");
    assert.equal(goAwayOf(client.feed(first)), Http2Code.protocolError);
  }
});

test("4.1 frames: unknown types and flags change nothing, except in a header block", () => {
  const server = openServer();
  server.feed(frame(0x77, 0xff, 0, Buffer.alloc(100)), frame(0x78, 0, 99, Buffer.alloc(100)), headers(1, GET, true));
  assert.equal(server.requests.length, 1);
  assertFails(Http2Code.protocolError, frame(FrameType.headers, 0, 1, encodeHeaderBlock(GET)), frame(0x77, 0, 1));
});

test("4.2 size: a frame above the announced size ends the connection", () => {
  assertFails(Http2Code.frameSizeError, headers(1, POST), frame(FrameType.data, 0, 1, Buffer.alloc(16_385)));
  const server = openServer({ maxFrameBytes: 20_000 });
  server.feed(headers(1, POST), frame(FrameType.data, 0, 1, Buffer.alloc(20_000)));
  assert.equal(firstOf(server).bytes, 20_000);
});

test("4.3 header blocks: CONTINUATION joins them; what interrupts one, or a bad block, ends the connection", () => {
  const block = encodeHeaderBlock(GET);
  const parts = (last: number) => [
    frame(FrameType.headers, Flag.endStream, 1, block.subarray(0, 5)),
    frame(FrameType.continuation, 0, 1, block.subarray(5, 11)),
    frame(FrameType.continuation, 0, 1),
    frame(FrameType.continuation, Flag.endHeaders, last, block.subarray(11)),
  ];
  const server = openServer();
  server.feed(...parts(1));
  assert.deepEqual(server.requests[0]?.headers, GET);
  assert.equal(firstOf(server).ends, 1);
  assertFails(Http2Code.protocolError, ...parts(3));
  for (const other of [
    data(1, "x"),
    frame(FrameType.ping, 0, 0, Buffer.alloc(8)),
    headers(1, GET),
    headers(3, GET),
    settings(),
    frame(FrameType.priority, 0, 1, Buffer.alloc(5)),
  ]) {
    assertFails(Http2Code.protocolError, frame(FrameType.headers, 0, 1, block), other);
  }
  assertFails(Http2Code.protocolError, frame(FrameType.continuation, Flag.endHeaders, 1, block));
  assertFails(Http2Code.compressionError, frame(FrameType.headers, 4, 1, Buffer.from([0x80])));
  assertFails(Http2Code.compressionError, frame(FrameType.headers, 4, 1, Buffer.from([0xff, 0xff, 0xff, 0xff, 0xff])));
});

test("4.3 header blocks: one of a stream that is refused still changes the table", () => {
  const server = openServer({ maxConcurrentStreams: 1 });
  // "x-a: b" with indexing, then the whole request by indexes.
  const first = Buffer.from("828684c0", "hex");
  server.feed(headers(1, POST));
  assert.deepEqual(resetsOf(server.feed(frame(FrameType.headers, 5, 3, Buffer.from("8286844003782d610162", "hex")))), [
    `3: ${Http2Code.refusedStream}`,
  ]);
  firstOf(server).stream?.reset(Http2Code.cancel);
  first[3] = 0xbe;
  server.feed(frame(FrameType.headers, 5, 5, first));
  assert.deepEqual(server.requests[1]?.headers.at(-1), ["x-a", "b"]);
});

test("5.1 idle: only HEADERS and PRIORITY may come", () => {
  assertFails(Http2Code.protocolError, data(1, "x"));
  assertFails(Http2Code.protocolError, frame(FrameType.rstStream, 0, 1, uint32(8)));
  assertFails(Http2Code.protocolError, windowUpdate(1, 1));
  assertFails(Http2Code.protocolError, headers(5, GET, true), data(7, "x"));
  assertResets([], frame(FrameType.priority, 0, 9, Buffer.alloc(5)), headers(1, GET, true));
});

test("5.1 half-closed (remote): DATA and HEADERS are STREAM_CLOSED; the rest of the connection goes on", () => {
  const server = assertResets(
    [`1: ${Http2Code.streamClosed}`],
    headers(1, GET, true),
    data(1, "x"),
    headers(3, GET, true),
  );
  assert.deepEqual([firstOf(server).fault?.code, firstOf(server).fault?.origin], [Http2Code.streamClosed, "local"]);
  assert.equal(server.requests[1]?.seen.closes, 0);
  assertResets([`1: ${Http2Code.streamClosed}`], headers(1, GET, true), headers(1, [["x", "y"]], true));
  assertResets([], headers(1, GET, true), windowUpdate(1, 5), frame(FrameType.priority, 0, 1, Buffer.alloc(5)));
});

test("5.1 half-closed (local): the peer's bytes still come after this side has ended", () => {
  const server = openServer();
  server.answer = (seen) => seen.stream?.sendHeaders(OK, true);
  server.feed(headers(1, POST), data(1, "he"), windowUpdate(1, 9), data(1, "llo", 1));
  assert.equal(String(firstOf(server).data), "hello");
  assert.deepEqual([firstOf(server).ends, firstOf(server).closes, firstOf(server).fault], [1, 1, undefined]);
});

test("5.1 closed: after both ends DATA is STREAM_CLOSED, HEADERS end the connection, WINDOW_UPDATE and RST_STREAM are ignored", () => {
  const closed = (): Recorder => {
    const server = openServer();
    server.answer = (seen) => seen.stream?.sendHeaders(OK, true);
    server.feed(headers(1, GET, true));
    assert.equal(server.connection.streams, 0);
    return server;
  };
  assert.deepEqual(resetsOf(closed().feed(data(1, "x"))), [`1: ${Http2Code.streamClosed}`]);
  assert.equal(goAwayOf(closed().feed(headers(1, GET, true))), Http2Code.protocolError);
  assert.deepEqual(closed().feed(windowUpdate(1, 1), frame(FrameType.rstStream, 0, 1, uint32(0))), []);
});

test("5.1 closed: what the peer sent before it knew of a reset is dropped, and its credit returned", () => {
  const server = openServer();
  server.feed(headers(1, POST));
  firstOf(server).stream?.reset(Http2Code.cancel);
  const sent = server.feed(
    ...Array.from({ length: 4 }, () => data(1, Buffer.alloc(10_000))),
    headers(1, [["grpc-status", "0"]], true),
    frame(FrameType.rstStream, 0, 1, uint32(8)),
    windowUpdate(1, 10),
  );
  assert.deepEqual(resetsOf(sent), [`1: ${Http2Code.cancel}`]);
  assert.equal(creditOf(sent, 0), 40_000);
  assert.equal(firstOf(server).bytes, 0);
  assert.equal(firstOf(server).closes, 1);
});

test("5.1.1 ids: a client's are odd and grow; a server opens none", () => {
  assertFails(Http2Code.protocolError, headers(2, GET, true));
  assertFails(Http2Code.protocolError, headers(5, GET, true), headers(3, GET, true));
  const client = openClient();
  assert.equal(goAwayOf(client.feed(headers(2, OK, true))), Http2Code.protocolError);
  const other = openClient();
  assert.equal(goAwayOf(other.feed(headers(1, OK, true))), Http2Code.protocolError);
  assert.throws(() => openServer().open(GET), /a server opens no stream/);
});

test("5.1.2 concurrency: streams above the limit are refused, and may be sent again", () => {
  const server = openServer({ maxConcurrentStreams: 2 });
  const sent = server.feed(headers(1, POST), headers(3, POST), headers(5, POST), data(5, "dropped", 1));
  assert.deepEqual(resetsOf(sent), [`5: ${Http2Code.refusedStream}`]);
  assert.equal(server.requests.length, 2);
  const client = openClient();
  const seen = client.open(GET, true);
  client.feed(frame(FrameType.rstStream, 0, 1, uint32(Http2Code.refusedStream)));
  assert.deepEqual([seen.fault?.isUnprocessed, seen.fault?.origin], [true, "peer"]);
});

test("5.1.2 concurrency: own streams wait for the peer's limit with their data, in order, and can be reset", () => {
  const client = openClient({ maxPendingStreams: 3 }, [Setting.maxConcurrentStreams, 1]);
  const streams = [client.open(POST), client.open(POST), client.open(GET, true), client.open(POST)];
  assert.throws(() => client.open(GET), { name: "Http2Error", code: "refused" });
  streams[1]?.stream?.sendData([Buffer.from("waits")], true);
  streams[3]?.stream?.sendHeaders([["x", "y"]], true);
  assert.deepEqual(
    client.take().map(({ type, stream }) => [type, stream]),
    [[1, 1]],
  );
  streams[2]?.stream?.reset(Http2Code.cancel);
  assert.deepEqual([streams[2]?.closes, streams[2]?.fault?.isUnprocessed, client.take().length], [1, true, 0]);
  const second = client.feed(headers(1, OK, true), frame(FrameType.rstStream, 0, 1, uint32(0)));
  assert.deepEqual(
    second.map(({ type, stream, flags }) => [type, stream, flags]),
    [
      [FrameType.headers, 3, Flag.endHeaders],
      [FrameType.data, 3, Flag.endStream],
    ],
  );
  // A limit that grows lets the last one go, trailers without data behind its head.
  const third = client.feed(settings([Setting.maxConcurrentStreams, 2]));
  assert.deepEqual(
    third.slice(-2).map(({ type, stream, flags }) => [type, stream, flags]),
    [
      [FrameType.headers, 5, Flag.endHeaders],
      [FrameType.headers, 5, Flag.endHeaders | Flag.endStream],
    ],
  );
  assert.equal(client.connection.streams, 2);
});

test("5.2 flow control: DATA above the stream's or the connection's window is FLOW_CONTROL_ERROR", () => {
  const full = Array.from({ length: 4 }, () => data(1, Buffer.alloc(16_384)));
  const unread = (options: Partial<Http2Options>): Recorder => {
    const server = openServer({ maxUnconsumedBytes: 0, ...options });
    server.answer = (seen) => {
      seen.consumes = false;
    };
    server.feed(headers(1, POST));
    return server;
  };
  const ofStream = unread({ connectionWindowBytes: 1 << 20 });
  assert.deepEqual(resetsOf(ofStream.feed(...full)), [`1: ${Http2Code.flowControlError}`]);
  assert.equal(ofStream.failure, undefined);
  const ofConnection = unread({ streamWindowBytes: 1 << 20 });
  assert.equal(goAwayOf(ofConnection.feed(...full)), Http2Code.flowControlError);
});

test("5.2 flow control: credit comes in batches of half a window, for padding too", () => {
  const server = openServer({ streamWindowBytes: 100_000, connectionWindowBytes: 100_000 });
  server.feed(headers(1, POST));
  const padded = frame(FrameType.data, Flag.padded, 1, Buffer.concat([Buffer.from([255]), Buffer.alloc(9999)]));
  const before = server.feed(...Array.from({ length: 4 }, () => padded));
  assert.deepEqual([creditOf(before, 0), creditOf(before, 1)], [0, 0]);
  const after = server.feed(padded);
  assert.deepEqual([creditOf(after, 0), creditOf(after, 1)], [50_000, 50_000]);
  assert.equal(firstOf(server).bytes, 5 * (10_000 - 256));
});

test("5.2 flow control: a stream that is not read holds its own window only, until the user holds too much in all", () => {
  const server = openServer({ streamWindowBytes: 65_535, connectionWindowBytes: 65_535, maxUnconsumedBytes: 100_000 });
  server.answer = (seen) => {
    seen.consumes = false;
  };
  const fill = (stream: number) => [16_384, 16_384, 16_384, 16_383].map((size) => data(stream, Buffer.alloc(size)));
  assert.equal(creditOf(server.feed(headers(1, POST), ...fill(1)), 0), 32_768, "the connection's window opens again");
  assert.equal(creditOf(server.feed(headers(3, POST), ...fill(3)), 0), 49_151, "until the user holds more than it may");
  assert.equal(server.connection.unconsumedBytes, 2 * 65_535);
  firstOf(server).stream?.consume(65_535);
  const sent = server.take();
  assert.deepEqual([creditOf(sent, 0), creditOf(sent, 1), creditOf(sent, 3)], [49_151, 65_535, 0]);
  // More than was received cannot be consumed, and a stream that ends is consumed.
  firstOf(server).stream?.consume(1 << 20);
  assert.equal(server.connection.unconsumedBytes, 65_535);
  server.requests[1]?.seen.stream?.reset(Http2Code.cancel);
  assert.equal(server.connection.unconsumedBytes, 0);
});

test("5.2 flow control: the end of a stream that nobody reads opens the connection's window again", () => {
  const server = openServer({ maxUnconsumedBytes: 0 });
  server.answer = (seen) => {
    seen.consumes = false;
  };
  const full = [16_384, 16_384, 16_384, 16_383].map((size) => data(1, Buffer.alloc(size)));
  assert.deepEqual(server.feed(headers(1, POST), ...full), []);
  assert.equal(creditOf(server.feed(frame(FrameType.rstStream, 0, 1, uint32(8))), 0), 65_535);
});

test("5.2 flow control: a window that grows does so for open streams and new ones, and its batches with it", () => {
  const server = openServer({ streamWindowBytes: 65_535, connectionWindowBytes: 1 << 20 });
  server.answer = (seen) => {
    seen.consumes = false;
  };
  server.feed(headers(1, POST));
  server.connection.setStreamWindow(65_535);
  assert.deepEqual(server.take(), []);
  server.connection.setStreamWindow(131_070);
  const [told] = server.take();
  assert.deepEqual([told?.type, told?.payload.toString("hex")], [FrameType.settings, "00040001fffe"]);
  server.feed(headers(3, POST));
  for (const stream of [1, 3]) {
    const window = Array.from({ length: 8 }, (_, at) => data(stream, Buffer.alloc(at < 7 ? 16_384 : 16_382)));
    assert.deepEqual(resetsOf(server.feed(...window)), []);
    const { stream: opened } = server.requests.find(({ seen }) => seen.stream?.id === stream)?.seen ?? assert.fail();
    opened?.consume(65_534);
    assert.equal(creditOf(server.take(), stream), 0);
    opened?.consume(1);
    assert.equal(creditOf(server.take(), stream), 65_535);
    assert.deepEqual(resetsOf(server.feed(...window)), [`${stream}: ${Http2Code.flowControlError}`]);
  }
  server.connection.close("over");
  server.connection.setStreamWindow(1 << 20);
  assert.deepEqual(server.take(), []);
});

const ACK = frame(FrameType.settings, Flag.ack, 0, Buffer.alloc(0));

test("6.9.2 flow control: a window that shrinks counts from the peer's acknowledgement on, may be negative, and holds no more than it is", () => {
  const server = openServer({ streamWindowBytes: 262_144, connectionWindowBytes: 1 << 20 });
  server.answer = (seen) => {
    seen.consumes = false;
  };
  server.feed(ACK, headers(1, POST));
  server.connection.setStreamWindow(65_535);
  const [told] = server.take();
  assert.deepEqual([told?.type, told?.payload.toString("hex")], [FrameType.settings, "00040000ffff"]);
  // It does not know yet, nor of a new stream's.
  const part = (stream: number, count: number) =>
    Array.from({ length: count }, () => data(stream, Buffer.alloc(16_384)));
  assert.deepEqual(resetsOf(server.feed(...part(1, 8), headers(3, POST), ...part(3, 8))), []);
  assert.deepEqual(resetsOf(server.feed(ACK, headers(5, POST), ...part(5, 3))), []);
  const first = server.requests[0]?.seen ?? assert.fail();
  // 131,072 are held of a window of 65,535: nothing may come before that has sunk.
  first.stream?.consume(65_536);
  assert.equal(creditOf(server.take(), 1), 65_536);
  assert.deepEqual(resetsOf(server.feed(data(1, "x"))), [`1: ${Http2Code.flowControlError}`]);
  const third = server.requests[1]?.seen ?? assert.fail();
  third.stream?.consume(131_072);
  assert.equal(creditOf(server.take(), 3), 131_072);
  assert.deepEqual(resetsOf(server.feed(...part(3, 3), data(3, Buffer.alloc(16_383)))), []);
  assert.deepEqual(resetsOf(server.feed(data(3, "x"))), [`3: ${Http2Code.flowControlError}`]);
});

test("6.9.2 flow control: credit that was no batch of the larger window goes back when it shrinks", () => {
  const server = openServer({ streamWindowBytes: 262_144, connectionWindowBytes: 1 << 20 });
  server.feed(ACK, headers(1, POST), ...Array.from({ length: 6 }, () => data(1, Buffer.alloc(16_384))));
  server.take();
  server.connection.setStreamWindow(65_535);
  assert.equal(creditOf(server.take(), 1), 98_304);
});

test("6.5.3 settings: a peer that goes on with a window that was taken back, and does not acknowledge it, loses the connection", async () => {
  const server = openServer({ streamWindowBytes: 262_144 });
  server.feed(ACK, headers(1, POST));
  server.connection.setStreamWindow(65_535);
  await server.clock.advance(30_000);
  assert.equal(goAwayOf(server.feed(data(1, "x"))), undefined);
  await server.clock.advance(1);
  assert.equal(goAwayOf(server.feed(data(1, "x"))), Http2Code.settingsTimeout);
});

test("5.4 errors: a connection that fails closes each stream once, and says why in its GOAWAY", () => {
  const client = openClient({}, [Setting.maxConcurrentStreams, 2]);
  const streams = [client.open(POST), client.open(POST), client.open(POST)];
  client.take();
  const [sent] = client.feed(frame(FrameType.pushPromise, 4, 1, uint32(2)));
  assert.equal(sent?.type, FrameType.goAway);
  assert.match(String(sent?.payload.subarray(8)), /PUSH_PROMISE/);
  assert.deepEqual(
    streams.map(({ closes, fault }) => [closes, fault?.origin, fault?.isUnprocessed]),
    [
      [1, "connection", false],
      [1, "connection", false],
      [1, "connection", true],
    ],
  );
  assert.equal(client.connection.acceptsStreams, false);
  assert.throws(() => client.open(GET), { code: "refused" });
  streams[0]?.stream?.sendData([Buffer.from("x")], true);
  assert.deepEqual([client.connection.hasOutput, client.connection.streams], [false, 0]);
});

test("6.1 DATA: padding is taken off; a frame of stream 0, or with more padding than content, ends the connection", () => {
  const server = openServer();
  server.feed(headers(1, POST), frame(FrameType.data, Flag.padded | Flag.endStream, 1, Buffer.from("\x03hey\0\0\0")));
  assert.equal(String(firstOf(server).data), "hey");
  assert.equal(firstOf(server).ends, 1);
  assertFails(Http2Code.protocolError, data(0, "x"));
  assertFails(Http2Code.protocolError, headers(1, POST), frame(FrameType.data, Flag.padded, 1, Buffer.from("\x04hey")));
});

test("6.2 HEADERS: padding and priority are taken off; more of them than content ends the connection", () => {
  const block = encodeHeaderBlock(GET);
  const server = openServer();
  const payload = Buffer.concat([Buffer.from([4]), uint32(0x8000_0001), Buffer.from([255]), block, Buffer.alloc(4)]);
  server.feed(frame(FrameType.headers, 5 | Flag.padded | Flag.priority, 1, payload));
  assert.deepEqual(server.requests[0]?.headers, GET);
  assertFails(Http2Code.protocolError, frame(FrameType.headers, 4 | Flag.padded, 1, Buffer.from([5, 1, 2])));
  assertFails(Http2Code.protocolError, frame(FrameType.headers, 4 | Flag.priority, 1, Buffer.from([5, 1, 2])));
  assertFails(Http2Code.protocolError, headers(0, GET));
});

test("6.3 to 6.9: frames on the wrong stream, and of a wrong size", () => {
  for (const bytes of [
    frame(FrameType.priority, 0, 0, Buffer.alloc(5)),
    frame(FrameType.rstStream, 0, 0, uint32(0)),
    frame(FrameType.settings, 0, 1),
    frame(FrameType.ping, 0, 1, Buffer.alloc(8)),
    frame(FrameType.goAway, 0, 1, Buffer.alloc(8)),
    frame(FrameType.pushPromise, 4, 1, uint32(2)),
    frame(FrameType.continuation, 4, 0),
  ]) {
    assertFails(Http2Code.protocolError, bytes);
  }
  for (const bytes of [
    frame(FrameType.settings, 0, 0, Buffer.alloc(5)),
    frame(FrameType.settings, Flag.ack, 0, Buffer.alloc(6)),
    frame(FrameType.goAway, 0, 0, Buffer.alloc(7)),
  ]) {
    assertFails(Http2Code.frameSizeError, bytes);
  }
});

test("6.4 RST_STREAM: the user hears the code, what waits is dropped, and nothing more is sent", () => {
  const server = openServer();
  server.feed(headers(1, POST));
  const seen = firstOf(server);
  seen.stream?.sendHeaders(OK, false);
  seen.stream?.sendData([Buffer.alloc(1000)], false);
  server.connection.receive(frame(FrameType.rstStream, 0, 1, uint32(Http2Code.cancel)));
  assert.deepEqual([seen.closes, seen.fault?.code, seen.fault?.origin], [1, Http2Code.cancel, "peer"]);
  seen.stream?.sendData([Buffer.alloc(10)], true);
  seen.stream?.consume(5);
  seen.stream?.reset(Http2Code.cancel);
  assert.deepEqual(
    server.take().map(({ type }) => type),
    [FrameType.headers],
  );
  assert.equal(server.connection.queuedBytes, 0);
});

test("6.5 SETTINGS: are acknowledged in order; values out of range end the connection", () => {
  const server = openServer();
  const sent = server.feed(settings([Setting.initialWindowSize, 5], [99, 1]), settings());
  assert.deepEqual(
    sent.map(({ type, flags, payload }) => [type, flags, payload.length]),
    [
      [4, 1, 0],
      [4, 1, 0],
    ],
  );
  assertFails(Http2Code.protocolError, settings([Setting.enablePush, 2]));
  assertFails(Http2Code.flowControlError, settings([Setting.initialWindowSize, 0x8000_0000]));
  assertFails(Http2Code.protocolError, settings([Setting.maxFrameSize, 16_383]));
  assertFails(Http2Code.protocolError, settings([Setting.maxFrameSize, 16_777_216]));
  const client = new Recorder("client");
  assert.equal(goAwayOf(client.feed(settings([Setting.enablePush, 1]))), Http2Code.protocolError);
});

test("6.5 SETTINGS: HEADER_TABLE_SIZE 0 is obeyed: no block refers to a table that the peer has dropped", () => {
  const server = openServer();
  const decode = blockDecoder();
  const answer = [...OK, ["x-long", "value"]] as const;
  server.answer = (seen) => seen.stream?.sendHeaders(answer, true);
  const [first] = server.feed(headers(1, GET, true));
  decode(first?.payload ?? Buffer.alloc(0));
  const second = server.feed(settings([Setting.headerTableSize, 0]), headers(3, GET, true)).at(-1);
  assert.equal(second?.payload[0], 0x20, "the change is told");
  assert.deepEqual(decode(second?.payload ?? Buffer.alloc(0)), answer);
});

test("6.7 PING: is answered with its bytes, before what waits; an answer reaches the user", () => {
  const server = openServer();
  server.feed(headers(1, GET, true));
  firstOf(server).stream?.sendHeaders(OK, false);
  firstOf(server).stream?.sendData([Buffer.alloc(2000)], true);
  const sent = server.feed(frame(FrameType.ping, 0, 0, Buffer.from("01234567")));
  assert.deepEqual(
    sent.map(({ type }) => type),
    [FrameType.headers, FrameType.ping, FrameType.data],
  );
  assert.deepEqual([String(sent[1]?.payload), sent[1]?.flags, server.pings], ["01234567", Flag.ack, 1]);
  server.connection.ping(Buffer.from("abcdefgh"));
  assert.deepEqual(
    server.take().map(({ flags, payload }) => [flags, String(payload)]),
    [[0, "abcdefgh"]],
  );
  server.feed(frame(FrameType.ping, Flag.ack, 0, Buffer.from("abcdefgh")));
  assert.equal(String(Buffer.from(server.pongs[0] ?? [])), "abcdefgh");
  assert.throws(() => server.connection.ping(Buffer.alloc(7)), RangeError);
});

test("6.8 GOAWAY: streams that the peer has not seen close unprocessed, the others go on, new ones are refused", () => {
  const client = openClient({}, [Setting.maxConcurrentStreams, 3]);
  const streams = [client.open(POST), client.open(POST), client.open(POST), client.open(POST)];
  client.feed(frame(FrameType.goAway, 0, 0, Buffer.concat([uint32(0x7fff_ffff, 0)])));
  assert.deepEqual(
    streams.map(({ closes }) => closes),
    [0, 0, 0, 1],
    "the one that waits is not sent any more",
  );
  client.feed(frame(FrameType.goAway, 0, 0, Buffer.concat([uint32(3, 0), Buffer.from("bye")])));
  assert.deepEqual(
    streams.map(({ closes, fault }) => [closes, fault?.isUnprocessed]),
    [
      [0, undefined],
      [0, undefined],
      [1, true],
      [1, true],
    ],
  );
  assert.deepEqual(client.goAways, [
    { code: 0, message: "" },
    { code: 0, message: "bye" },
  ]);
  assert.throws(() => client.open(GET), { code: "refused" });
  client.feed(headers(1, OK), data(1, "still", 1));
  assert.equal(String(streams[0]?.data), "still");
});

test("6.8 GOAWAY: after its own a server drops new streams, which still change its table and its window", () => {
  const server = openServer();
  server.feed(headers(1, POST));
  server.connection.goAway(0, "leaving", 0x7fff_ffff);
  server.feed(headers(3, POST));
  server.connection.goAway(0, "leaving");
  const sent = server.feed(
    headers(5, POST),
    ...Array.from({ length: 3 }, () => data(5, Buffer.alloc(16_000))),
    data(3, "on", 1),
  );
  assert.equal(sent[0]?.payload.readUInt32BE(0), 3, "the last stream that is served");
  assert.equal(creditOf(sent, 0), 48_000);
  assert.equal(server.requests.length, 2);
  assert.equal(String(server.requests[1]?.seen.data), "on");
  assert.deepEqual(resetsOf(sent), []);
  // A failure later names no later stream (RFC 9113 section 6.8).
  const [failed] = server.feed(data(0, "x"));
  assert.equal(failed?.payload.readUInt32BE(0), 3);
});

test("6.9 WINDOW_UPDATE: 0, or a window above 2^31-1, is an error of the stream or of the connection", () => {
  assertResets([`1: ${Http2Code.protocolError}`], headers(1, POST), windowUpdate(1, 0));
  assertFails(Http2Code.protocolError, windowUpdate(0, 0));
  assertResets([`1: ${Http2Code.flowControlError}`], headers(1, POST), windowUpdate(1, 0x7fff_ffff));
  assertFails(Http2Code.flowControlError, windowUpdate(0, 0x7fff_ffff));
  // The reserved bit is ignored.
  assertResets([], headers(1, POST), windowUpdate(1, 0x8000_0005));
});

test("6.9 sending: DATA is cut by the stream's window, the connection's and the frame size; the end needs no window", () => {
  const server = openServer({}, [Setting.initialWindowSize, 20_000]);
  server.feed(
    headers(1, GET, true),
    headers(3, GET, true),
    headers(5, GET, true),
    headers(7, GET, true),
    headers(9, GET, true),
  );
  for (const { seen } of server.requests) {
    seen.stream?.sendHeaders(OK, false);
    seen.stream?.sendData([Buffer.alloc(30_000, seen.stream.id)], false);
    seen.stream?.sendHeaders([["grpc-status", "0"]], true);
  }
  const sent = server.take();
  const sizes = sent
    .filter(({ type }) => type === FrameType.data)
    .map(({ stream, payload }) => `${stream}:${payload.length}`);
  assert.deepEqual(sizes, ["1:16384", "3:16384", "5:16384", "7:16383"], "one frame of each in turn, 65,535 in all");
  assert.equal(server.connection.hasOutput, false);
  assert.equal(server.connection.queuedBytes, 150_000 - 65_535);
  const more = server.feed(windowUpdate(0, 1 << 20));
  assert.deepEqual(
    more.map(({ stream, payload }) => `${stream}:${payload.length}`),
    ["9:16384", "1:3616", "3:3616", "5:3616", "7:3617", "9:3616"],
  );
  const rest = server.feed(windowUpdate(1, 10_000));
  assert.deepEqual(
    rest.map(({ type, flags, stream, payload }) => [type, flags, stream, payload.length]),
    [
      [FrameType.data, 0, 1, 10_000],
      [FrameType.headers, 5, 1, rest[1]?.payload.length],
    ],
  );
  assert.equal(firstOf(server).closes, 1);
  assert.equal(dataOf([...sent, ...more, ...rest], 1).length, 30_000);
});

test("6.9.2 initial window: a change reaches open streams, makes windows negative, and may not overflow", () => {
  const server = openServer();
  server.feed(headers(1, GET, true));
  const { stream } = firstOf(server);
  stream?.sendHeaders(OK, false);
  stream?.sendData([Buffer.alloc(40_000)], false);
  assert.equal(dataOf(server.take(), 1).length, 40_000);
  // 65,535 - 40,000 were left: the window is 20,000 - 40,000 now.
  server.feed(settings([Setting.initialWindowSize, 20_000]));
  stream?.sendData([Buffer.alloc(10)], false);
  assert.deepEqual(server.feed(windowUpdate(1, 20_000)), [], "the window is 0");
  assert.equal(dataOf(server.feed(windowUpdate(1, 4)), 1).length, 4);
  assert.equal(dataOf(server.feed(settings([Setting.initialWindowSize, 20_100])), 1).length, 6);
  server.feed(windowUpdate(1, 0x7fff_ff00));
  assert.equal(goAwayOf(server.feed(settings([Setting.initialWindowSize, 0x7fff_ffff]))), Http2Code.flowControlError);
});

test("8.1 messages: trailers end a message; headers in its middle, DATA before a response and a short body do not pass", () => {
  const server = assertResets([], headers(1, POST), data(1, "x"), headers(1, [["x-sum", "1"]], true));
  assert.deepEqual([firstOf(server).trailers, firstOf(server).ends], [[["x-sum", "1"]], 1]);
  assertResets([`1: ${Http2Code.protocolError}`], headers(1, POST), headers(1, [["x", "y"]]));
  assertResets([`1: ${Http2Code.protocolError}`], headers(1, POST), headers(1, [[":path", "/"]], true));
  const client = openClient();
  const seen = client.open(POST);
  assert.deepEqual(resetsOf(client.feed(data(1, "x"))), [`1: ${Http2Code.protocolError}`]);
  assert.equal(seen.bytes, 0);
});

test("8.1 messages: NO_ERROR after a whole response keeps it, and ends the stream without a fault of the response", () => {
  const client = openClient();
  const seen = client.open(POST);
  client.feed(headers(1, OK), data(1, "whole", 1), frame(FrameType.rstStream, 0, 1, uint32(0)));
  assert.deepEqual([String(seen.data), seen.ends, seen.fault?.code], ["whole", 1, Http2Code.noError]);
  const server = openServer();
  server.answer = (one) => {
    one.stream?.sendHeaders(OK, false);
    one.stream?.sendData([Buffer.from("whole")], true);
    one.stream?.resetAfterEnd();
  };
  const sent = server.feed(headers(1, POST));
  assert.deepEqual(
    sent.map(({ type }) => type),
    [FrameType.headers, FrameType.data],
  );
  assert.deepEqual(resetsOf(server.take()), ["1: 0"]);
});

test("8.1.1 content-length: more or less data than promised is malformed", () => {
  const request = (length: string) => [...POST, ["content-length", length]] as const;
  assertResets([`1: ${Http2Code.protocolError}`], headers(1, request("2")), data(1, "abc"));
  assertResets([`1: ${Http2Code.protocolError}`], headers(1, request("4")), data(1, "abc", 1));
  assertResets(
    [`1: ${Http2Code.protocolError}`],
    headers(1, request("4")),
    data(1, "abc"),
    headers(1, [["x", "y"]], true),
  );
  assertResets([`1: ${Http2Code.protocolError}`], headers(1, request("4"), true));
  assertResets([`1: ${Http2Code.protocolError}`], headers(1, request("-1")));
  assertResets([], headers(1, request("3")), data(1, "ab"), data(1, "c", 1));
  const client = openClient();
  const seen = client.open([[":method", "HEAD"], ...GET.slice(1)], true);
  client.feed(headers(1, [...OK, ["content-length", "10"]], true));
  assert.deepEqual([seen.closes, seen.fault], [1, undefined], "a response to HEAD has no data");
});

test("8.2 fields: upper case, forbidden characters and fields of connections are malformed", () => {
  for (const field of [
    ["X-Upper", "1"],
    ["", "1"],
    ["a b", "1"],
    ["x", "a\nb"],
    ["x", "a\0"],
    ["x", " a"],
    ["x", "a\t"],
    ["connection", "close"],
    ["keep-alive", "1"],
    ["proxy-connection", "1"],
    ["transfer-encoding", "chunked"],
    ["upgrade", "h2c"],
    ["te", "gzip"],
  ] as const) {
    assertResets([`1: ${Http2Code.protocolError}`], headers(1, [...GET, field], true));
  }
  assertResets([], headers(1, [...GET, ["te", "trailers"], ["x", ""], ["x", "\u00e9"]], true));
});

test("8.3 pseudo headers: wrong, absent, doubled or late ones are malformed; any authority passes", () => {
  const without = (name: string) => GET.filter(([one]) => one !== name);
  for (const list of [
    without(":method"),
    without(":scheme"),
    without(":path"),
    [...GET, [":method", "GET"]],
    [...GET, [":status", "200"]],
    [...GET, [":protocol", "websocket"]],
    [["x", "y"], ...GET],
    [...without(":path"), [":path", ""]],
    [[":method", "CONNECT"]],
    [...GET.slice(1), [":method", "CONNECT"]],
  ] as const) {
    assertResets([`1: ${Http2Code.protocolError}`], headers(1, list as typeof GET, true));
  }
  const server = assertResets(
    [],
    headers(1, [...without(":authority"), [":authority", "/run/konnectivity.sock"]], true),
  );
  assert.deepEqual(server.requests[0]?.headers.at(-1), [":authority", "/run/konnectivity.sock"]);
  assertResets([], headers(1, without(":authority"), true));
});

test("8.3.2 responses: a status is three digits; informational ones are left out", () => {
  const client = openClient();
  const seen = client.open(POST);
  client.feed(headers(1, [[":status", "100"]]), headers(1, [[":status", "103"]]), headers(1, OK), data(1, "x", 1));
  assert.deepEqual([seen.headers, String(seen.data)], [OK, "x"]);
  for (const list of [
    [],
    [["x", "y"]],
    [[":status", "20"]],
    [[":status", "101"]],
    [[":status", "abc"]],
    [...OK, ...OK],
  ] as const) {
    const one = openClient();
    one.open(POST);
    assert.deepEqual(resetsOf(one.feed(headers(1, list as typeof GET))), [`1: ${Http2Code.protocolError}`]);
  }
  const ended = openClient();
  ended.open(POST);
  assert.deepEqual(resetsOf(ended.feed(headers(1, [[":status", "100"]], true))), [`1: ${Http2Code.protocolError}`]);
});

test("8.5 CONNECT: carries data both ways, with each side's own end", () => {
  const [client, server] = [new Recorder("client"), new Recorder("server")];
  server.answer = (seen, list) => {
    assert.deepEqual(list, [
      [":method", "CONNECT"],
      [":authority", "10.0.0.1:443"],
    ]);
    seen.stream?.sendHeaders(OK, false);
  };
  const tunnel = client.open([
    [":method", "CONNECT"],
    [":authority", "10.0.0.1:443"],
  ]);
  exchange(client, server);
  tunnel.stream?.sendData([Buffer.from("ping")], true);
  exchange(client, server);
  const far = firstOf(server);
  assert.deepEqual([String(far.data), far.ends, far.closes], ["ping", 1, 0]);
  far.stream?.sendData([Buffer.from("pong")], true);
  exchange(client, server);
  assert.deepEqual([String(tunnel.data), tunnel.fault, tunnel.closes, far.closes], ["pong", undefined, 1, 1]);
});

test("sending: headers and data in a wrong order are bugs; on a closed stream they do nothing", () => {
  const server = openServer();
  server.feed(headers(1, POST));
  const { stream } = firstOf(server);
  assert.throws(() => stream?.sendData([], false), /out of order/);
  stream?.sendHeaders(OK, false);
  assert.throws(() => stream?.sendHeaders(OK, false), /out of order/);
  stream?.sendData([Buffer.from("x")], true);
  assert.throws(() => stream?.sendData([], false), /out of order/);
  assert.throws(() => stream?.sendHeaders([], true), /out of order/);
  stream?.reset(0);
  stream?.sendData([Buffer.from("x")], false);
  stream?.sendHeaders([], true);
  assert.equal(stream?.sendable, 0);
});

test("sending: payload stays the caller's views, heads share one slab, and a batch has its bound", () => {
  const server = openServer(
    { sendMarkBytes: 100_000 },
    [Setting.maxFrameSize, 65_536],
    [Setting.initialWindowSize, 1 << 20],
  );
  server.feed(windowUpdate(0, 1 << 20), headers(1, GET, true));
  const seen = firstOf(server);
  const chunk = Buffer.alloc(60_000, 1);
  seen.stream?.sendHeaders(OK, false);
  assert.equal(seen.stream?.sendable, 100_000);
  seen.stream?.sendData([Buffer.from("head"), chunk, chunk], true);
  assert.deepEqual([seen.stream?.sendable, seen.stream?.queuedBytes], [0, 120_004]);
  const views = server.connection.takeOutput(62_000);
  assert.ok(views.reduce((sum, { length }) => sum + length, 0) <= 62_000 + 1024);
  assert.equal(views[1]?.buffer, chunk.buffer);
  assert.deepEqual([seen.sent, seen.stream?.sentBytes], [seen.stream?.sentBytes, seen.sent]);
  assert.equal(seen.closes, 0);
  const rest = Array.from({ length: 9 }, () => server.connection.takeOutput(62_000)).flat();
  const all = dataOf(framesOf(Buffer.concat([...views, ...rest])), 1);
  assert.ok(all.equals(Buffer.concat([Buffer.from("head"), chunk, chunk])));
  assert.deepEqual([seen.sent, seen.closes, seen.fault], [120_004, 1, undefined]);
});

test("sending: small frames of a tick are one view", () => {
  const server = openServer();
  server.feed(...Array.from({ length: 20 }, (_, at) => headers(2 * at + 1, GET, true)));
  for (const { seen } of server.requests) {
    seen.stream?.sendHeaders(OK, false);
    seen.stream?.sendData([Buffer.from("small")], true);
  }
  const views = server.connection.takeOutput(65_536);
  assert.ok(views.length <= 2, `${views.length} views`);
  assert.equal(framesOf(Buffer.concat(views)).length, 40);
});

test("sending: a header block larger than a frame is continued, and is read again by the other side", () => {
  const [client, server] = [new Recorder("client"), new Recorder("server", { maxHeaderListBytes: 100_000 })];
  const large = [...POST, ["x-large", "v".repeat(40_000)]] as const;
  client.open(large, true);
  const bytes = Buffer.concat(client.connection.takeOutput(1 << 20));
  assert.deepEqual(
    framesOf(bytes)
      .slice(-3)
      .map(({ type, flags }) => [type, flags]),
    [
      [FrameType.headers, Flag.endStream],
      [FrameType.continuation, 0],
      [FrameType.continuation, Flag.endHeaders],
    ],
  );
  server.connection.receive(bytes);
  assert.deepEqual(server.requests[0]?.headers, large);
});

test("writing: the owner is asked once until it has taken everything, and again when a window opens", () => {
  const server = openServer();
  const before = server.wants;
  server.connection.receive(headers(1, GET, true));
  assert.equal(server.wants, before, "a request is no output");
  const { stream } = firstOf(server);
  stream?.sendHeaders(OK, false);
  stream?.sendData([Buffer.alloc(100_000)], false);
  assert.equal(server.wants, before + 1);
  server.take(30_000);
  stream?.sendData([Buffer.alloc(10)], false);
  assert.equal(server.wants, before + 1, "the owner knows that there is more");
  server.take();
  assert.equal(server.connection.hasOutput, false);
  server.connection.receive(windowUpdate(0, 100));
  assert.equal(server.wants, before + 1, "the stream's window is still shut");
  server.connection.receive(windowUpdate(1, 100));
  assert.equal(server.wants, before + 2);
});

test("events: a stream may be reset within any of its events, and the connection closed", () => {
  for (const event of ["onData", "onTrailers", "onEnd"] as const) {
    for (const whole of [false, true]) {
      const server = openServer();
      server.answer = (seen) => {
        seen[event] = () => {
          if (whole) server.connection.close("over");
          else seen.stream?.reset(Http2Code.cancel);
        };
      };
      server.feed(headers(1, POST), data(1, "one"), data(1, "two"), headers(1, [["x", "y"]], true), headers(3, GET));
      assert.equal(firstOf(server).closes, 1, event);
      assert.equal(server.connection.streams, whole ? 0 : 1);
      assert.equal(server.connection.unconsumedBytes, 0);
    }
  }
  const server = openServer();
  server.answer = (seen) => seen.stream?.reset(Http2Code.cancel);
  server.feed(headers(1, POST), data(1, "x"));
  assert.equal(firstOf(server).closes, 1, "reset before its events were known");
});

test("events: output that is taken within an event keeps its order; nothing is received within one", () => {
  const server = openServer();
  server.feed(headers(1, GET, true), headers(3, GET, true));
  const taken: Buffer[] = [];
  const [first, second] = server.requests.map(({ seen }) => seen);
  for (const seen of [first, second]) {
    assert.ok(seen);
    seen.stream?.sendHeaders(OK, false);
    seen.stream?.sendData([Buffer.alloc(30_000)], false);
  }
  assert.ok(first);
  let events = 0;
  first.onSent = () => {
    events += 1;
    if (events > 1) return;
    first.stream?.sendData([Buffer.from("after")], true);
    assert.deepEqual(server.connection.takeOutput(65_536), []);
    assert.throws(() => server.connection.receive(Buffer.alloc(0)), /within an event/);
  };
  while (server.connection.hasOutput)
    taken.push(...server.connection.takeOutput(20_000).map((view) => Buffer.from(view)));
  const sent = framesOf(Buffer.concat(taken));
  assert.equal(dataOf(sent, 1).toString("latin1").replaceAll("\0", ""), "after");
  assert.deepEqual([dataOf(sent, 1).length, dataOf(sent, 3).length], [30_005, 30_000]);
  const other = openServer();
  other.answer = (seen) => {
    seen.stream?.sendHeaders(OK, true);
    taken.push(...other.connection.takeOutput(65_536).map((view) => Buffer.from(view)));
  };
  taken.length = 0;
  other.connection.receive(headers(1, GET, true));
  assert.equal(framesOf(Buffer.concat(taken)).length, 1);
  assert.equal(other.connection.hasOutput, false);
});

test("close: a lost transport closes each stream once, and leaves nothing to write", () => {
  const client = openClient();
  const seen = client.open(POST);
  seen.stream?.sendData([Buffer.alloc(10)], false);
  client.connection.close("the socket has ended");
  client.connection.close("again");
  assert.deepEqual([seen.closes, seen.fault?.message, client.connection.hasOutput], [1, "the socket has ended", false]);
  assert.deepEqual(client.feed(headers(1, OK, true)), []);
  assert.equal(client.failure, undefined);
});

test("options: values out of their range are refused", () => {
  for (const options of [
    { streamWindowBytes: 65_534 },
    { connectionWindowBytes: 0x8000_0000 },
    { maxFrameBytes: 16_383 },
    { maxSentFrameBytes: Number.NaN },
  ]) {
    assert.throws(() => new Recorder("client", options), RangeError);
  }
});

test("any cut: a whole exchange gives the same, whatever the size of reads", () => {
  for (const cut of [1, 2, 3, 7, 9, 100, 16_384]) {
    const [client, server] = [new Recorder("client"), new Recorder("server")];
    server.answer = (seen) => {
      seen.stream?.sendHeaders(OK, false);
      seen.onData = (bytes) => {
        seen.chunks.push(bytes);
        seen.stream?.consume(bytes.length);
        seen.stream?.sendData([bytes], false);
      };
      seen.onEnd = () => seen.stream?.sendHeaders([["grpc-status", "0"]], true);
    };
    const body = Buffer.from(Array.from({ length: 100_000 }, (_, at) => at % 251));
    const seen = client.open(POST);
    seen.stream?.sendData([body], true);
    exchange(client, server, cut, 50_000);
    assert.ok(seen.data.equals(body), `reads of ${cut} bytes`);
    assert.deepEqual([seen.trailers, seen.fault, seen.closes], [[["grpc-status", "0"]], undefined, 1]);
    assert.deepEqual([client.connection.streams, server.connection.streams], [0, 0]);
  }
});
